// Owns sending: the queue of messages, sending again, giving up, and what is remembered of a
// connection that has ended.
//
// A message that needs an answer is kept with its id and sent again when its time is over, so many
// times; then the id ends with an error. After its end a connection is remembered for as long as
// copies of its messages may be on the way, so that a late one is answered as before and no new
// connection is mistaken for it.
#include <cerrno>

#include "emu/roce/cm/manager.hpp"
#include "emu/roce/cm/messages.hpp"

namespace weft::roce::cm {
namespace {

// As long as a copy of a REQ may still be sent: every try, after the longest wait that an MRA asks
// for.
constexpr Duration kRemembered =
    (kMaxRetries + 1) * (time_of(kMraTimeout) + time_of(kResponseTimeout + 1));
constexpr unsigned kAttachmentShift = 24;

}  // namespace

// A message with the id's numbers, in both directions.
Manager::Message Manager::answer_of(const Connection& id, wire::CmKind kind) const {
  Message message;
  message.kind = kind;
  message.transaction = id.transaction;
  message.local_id = id.local_id;
  message.remote_id = id.remote_id;
  return message;
}

// Owners fetch messages in bursts; what does not fit is lost, as on the wire, and sent again.
void Manager::post(const srd::Address& from, const srd::Address& to, std::uint8_t traffic_class,
                   std::span<const std::byte, wire::kMadSize> mad) {
  if (outgoing_.size() - last_words_ >= config_.max_outgoing) {
    ++counters_.dropped;
    return;
  }
  Outgoing& out = outgoing_.emplace_back();
  out.from = from;
  out.to = to;
  out.traffic_class = traffic_class;
  std::ranges::copy(mad, out.mad.begin());
}

void Manager::post(const Connection& id, const Message& message) {
  std::array<std::byte, wire::kMadSize> mad;
  wire::write_cm(message, mad);
  post(id.path.source, id.path.destination, id.path.traffic_class, mad);
}

// The message is kept as bytes, so that a copy is the same to the last bit.
void Manager::post_reliably(TimePoint now, std::uint32_t slot, const Message& message) {
  Connection& id = ids_[slot];
  wire::write_cm(message, id.mad);
  id.mad_timeout = id.timeout;
  id.retries_left = id.max_retries;
  if (!mutated(Mutation::ask_once)) {
    deadlines_.set(slot, now + id.mad_timeout);
  }
  send_again(id);
}

void Manager::send_again(const Connection& id) {
  post(id.path.source, id.path.destination, id.path.traffic_class, id.mad);
}

// What an id that goes says to its peer, its good-bye, with a second copy. Nobody would say it
// again, so that there is room for that of each id, however many go at once. All first copies leave
// before any second one: a burst of loss does not take both of one connection.
void Manager::post_last_words(const Connection& id, bool are_said_before) {
  Outgoing words{.from = id.path.source,
                 .to = id.path.destination,
                 .traffic_class = id.path.traffic_class,
                 .is_last_word = true,
                 .mad = id.mad};
  if (!are_said_before) {
    if (last_words_ < config_.max_ids) {
      outgoing_.push_back(words);
      ++last_words_;
    } else {
      ++counters_.dropped;
    }
  }
  if (said_again_.size() < config_.max_ids) {
    said_again_.push_back(words);
  } else {
    ++counters_.dropped;
  }
}

void Manager::stop_timer(std::uint32_t slot) { deadlines_.clear(slot); }

// One timer per id serves both purposes: the next try, or the end of timewait.
void Manager::on_timeout(TimePoint now) {
  while (deadlines_.earliest() <= now) {
    const std::uint32_t slot = deadlines_.earliest_index();
    Connection& id = ids_[slot];
    if (id.phase == Phase::timewait) {
      stop_timer(slot);
      id.phase = Phase::idle;
      if (id.state == IdState::disconnected) {
        tell(slot, EventKind::timewait_exit);
      }
    } else if (id.retries_left > 0) {
      if (!mutated(Mutation::ask_for_ever)) {
        --id.retries_left;
      }
      ++counters_.retries;
      deadlines_.set(slot, now + id.mad_timeout);
      send_again(id);
    } else {
      give_up(now, slot);
    }
  }
}

// Nobody has answered. After a DREQ the connection is over in any case; otherwise the program hears
// that its peer cannot be reached.
void Manager::give_up(TimePoint now, std::uint32_t slot) {
  Connection& id = ids_[slot];
  const bool connecting = id.state == IdState::connecting;
  if (id.phase == Phase::disconnect_sent) {
    enter_timewait(now, slot);
    if (connecting) {
      id.state = IdState::disconnected;
      tell(slot, EventKind::disconnected, -ETIMEDOUT);
    }
    return;
  }
  reset(now, slot, Reason::timeout);
  if (connecting) {
    tell(slot, EventKind::unreachable, -ETIMEDOUT);
  }
}

// The queue pair may still be hit by late packets, so the id rests as long as such a packet may
// live.
void Manager::enter_timewait(TimePoint now, std::uint32_t slot) {
  forget_peer(now, slot, Reason::stale_connection);
  ids_[slot].phase = Phase::timewait;
  deadlines_.set(slot, now + time_of(ids_[slot].av_timeout));
}

void Manager::reset(TimePoint now, std::uint32_t slot, Reason reason,
                    std::span<const std::byte> data) {
  stop_timer(slot);
  forget_peer(now, slot, reason, data);
  ids_[slot].phase = Phase::idle;
}

// Takes the id out of the tables that messages find it by. The oldest remembered end gives way when
// there are too many.
void Manager::forget_peer(TimePoint now, std::uint32_t slot, Reason reason,
                          std::span<const std::byte> data) {
  Connection& id = ids_[slot];
  if (id.knows_remote_qpn) {
    by_remote_qpn_.erase({id.remote_guid, id.remote_qpn});
    id.knows_remote_qpn = false;
  }
  if (id.answers_sidr) {
    by_sidr_.erase({id.path.destination.words(), id.remote_id});
    id.answers_sidr = false;
  }
  if (!id.knows_remote_id) {
    return;
  }
  const RemoteKey key{id.remote_guid, id.remote_id};
  by_remote_id_.erase(key);
  id.knows_remote_id = false;
  while (!ended_order_.empty() &&
         (ended_order_.front().first <= now || ended_order_.size() >= config_.max_ended)) {
    const auto& [until, oldest] = ended_order_.front();
    if (const auto found = ended_.find(oldest);
        found != ended_.end() && found->second.until == until) {
      ended_.erase(found);  // and no later end of the same id
    }
    ended_order_.pop_front();
  }
  ended_.insert_or_assign(key, Ended{.until = now + kRemembered,
                                     .reason = reason,
                                     .peer = id.path.destination,
                                     .sequence = id.send_sequence,
                                     .data = {data.begin(), data.end()}});
  ended_order_.emplace_back(now + kRemembered, key);
}

// Whether the message is for this very NIC, and can be handed back to this manager without the
// network.
bool Manager::turns_round(const Outgoing& out) const {
  Message message;
  const LocalAddress* const own = find_address(out.to);
  if (own == nullptr || wire::parse_cm(out.mad, message) != wire::MadFault::none) {
    return false;
  }
  switch (message.kind) {
    case wire::CmKind::request:
    case wire::CmKind::sidr_request:
      return listeners_.contains(message.service_id);
    case wire::CmKind::sidr_reply:
      return message.local_id >> kAttachmentShift == config_.nics[own->nic].attachment;
    case wire::CmKind::reject:
      if (message.remote_id == 0) {
        return by_remote_id_.contains({guid_in(message), message.local_id});
      }
      [[fallthrough]];
    default:
      return message.remote_id >> kAttachmentShift == config_.nics[own->nic].attachment;
  }
}

bool Manager::next_mad(TimePoint now, Outgoing& out) {
  while (!outgoing_.empty() || !said_again_.empty()) {
    if (!outgoing_.empty()) {
      out = outgoing_.front();
      outgoing_.pop_front();
      last_words_ -= out.is_last_word ? 1U : 0U;
    } else {
      out = said_again_.front();
      said_again_.pop_front();
    }
    ++counters_.sent;
    if (!turns_round(out)) {
      return true;
    }
    on_mad(now, out.from, out.to, out.mad);
  }
  return false;
}

}  // namespace weft::roce::cm
