// Owns messages that arrive: which are valid, and whose turn it is.
//
// A message passes four stages: on_message() checks that it is one of ours and meant for this life;
// take_message() finds the partner and drops what belongs to an epoch that is over; put_in_order()
// holds back what came before its turn; offer() gives it to the first posted receive that matches,
// or keeps it in `waiting_`. A small message keeps the buffer that it came in until its bytes were
// copied; a large one is only a request, whose bytes are read by the receive that takes it.
#include "srd/base/check.hpp"
#include "srd/message/messenger.hpp"

namespace weft::srd {

using message::Kind;
using message::kMaxRequestsHeld;
using message::kNone;
using message::kOrderWindow;

void Messenger::on_message(Lane lane, std::uint32_t buffer, const Completion& completion) {
  if (completion.status != Status::ok) {
    return;  // the endpoint is being closed
  }
  const bool data = lane == Lane::data;
  const std::byte* bytes = data ? data_buffers_.get() + buffer * engine_.max_send_size()
                                : control_buffers_.get() + buffer * sizeof(Header);
  const auto header = message::parse_header({bytes, completion.length});
  // Small messages come and leave by the first endpoint, all else by the second.
  const bool valid = header && (static_cast<Kind>(header->kind) == Kind::eager) == data &&
                     (data || completion.remote.value() != 0);
  bool kept = false;
  if (!valid) {
    ++counters_.malformed;
  } else if (header->destination_life.value() != 0 &&
             header->destination_life.value() != engine_.config().life.value()) {
    ++counters_.stale;
  } else {
    const Qpn from{completion.remote.value() - (data ? 0 : 1)};
    kept = take_message(*header, {completion.peer, from, header->qkey.value()}, buffer);
  }
  if (!data) {
    ReceiveRequest receive;
    receive.segments[0] = {control_buffers_.get() + buffer * sizeof(Header), sizeof(Header)};
    receive.cookie = cookie_of(Lane::control, buffer);
    WEFT_CHECK(engine_.post_receive(control_endpoint(), receive) == PostResult::accepted);
  } else if (!kept) {
    give_back(buffer);
  }
}

// Returns whether the buffer is still needed.
bool Messenger::take_message(const Header& header, const MessageAddress& from,
                             std::uint32_t buffer) {
  const std::uint32_t index = find_or_make_partner(from);
  if (index == kNone) {
    ++counters_.refused;
    refuse(header, from);
    return false;
  }
  notice_restart(index);
  if (static_cast<Kind>(header.kind) == Kind::finished) {
    take_answer(index, header);
    return false;
  }
  const Partner& partner = partners_[index];
  const Serial<struct EpochTag, std::uint32_t> epoch{header.epoch.value()};
  const decltype(epoch) known{partner.their_epoch};
  const bool same_life = partner.heard && partner.their_life == header.source_life.value();
  if (same_life && epoch.before(known)) {
    ++counters_.stale;  // its sender has given it up, and its user knows
    return false;
  }
  if (!same_life || epoch != known) {
    begin_epoch(index, header);
  }
  return put_in_order(index, header, buffer);
}

bool Messenger::put_in_order(std::uint32_t index, const Header& header, std::uint32_t buffer) {
  Partner& partner = partners_[index];
  const bool ordered = (header.flags & message::kUnordered) == 0;
  const bool request = static_cast<Kind>(header.kind) == Kind::request;
  const std::uint32_t ahead = ordered ? header.sequence.value() - partner.expected : 0;
  if (ahead != 0 && partner.early.empty()) {
    partner.early.assign(kOrderWindow, kNone);
  }
  std::uint32_t* const slot = ahead == 0 || ahead >= kOrderWindow
                                  ? nullptr
                                  : &partner.early[header.sequence.value() % kOrderWindow];
  if (ahead >= kOrderWindow || (slot != nullptr && *slot != kNone) ||
      (request && partner.requests_held >= kMaxRequestsHeld)) {
    ++counters_.out_of_window;
    return false;
  }
  const std::uint32_t arrival = arrivals_.allocate();
  if (arrival == kNone) {
    ++counters_.refused;
    refuse(header, partner.address);
    return false;
  }
  arrivals_[arrival] = {header, index, request ? kNone : buffer};
  partner.requests_held += request;
  if (slot != nullptr) {
    ++counters_.out_of_order;
    *slot = arrival;
    return true;
  }
  offer(arrival);
  if (ordered) {
    ++partner.expected;
    while (!partner.early.empty() && partner.early[partner.expected % kOrderWindow] != kNone) {
      std::uint32_t& next = partner.early[partner.expected % kOrderWindow];
      const std::uint32_t early = next;
      next = kNone;
      ++partner.expected;
      offer(early);
    }
  }
  return true;  // if a receive has taken the bytes, the buffer has been given back
}

// The sender has given up all that it had under way, or has restarted. Messages missing from its
// last epoch will never come, and the bytes behind its open requests can no longer be read.
void Messenger::begin_epoch(std::uint32_t index, const Header& header) {
  Partner& partner = partners_[index];
  if (!partner.early.empty()) {
    for (std::uint32_t i = 0; i < kOrderWindow; ++i) {
      std::uint32_t& slot = partner.early[(partner.expected + i) % kOrderWindow];
      const std::uint32_t arrival = slot;
      slot = kNone;
      if (arrival == kNone) {
        continue;
      }
      if (arrivals_[arrival].is_request()) {
        ++counters_.stale;
        release_arrival(arrival);
      } else {
        offer(arrival);
      }
    }
  }
  const auto stale = [&](const Waiting& waiting) {
    const Arrival& arrival = arrivals_[waiting.arrival];
    return arrival.partner == index && arrival.is_request();
  };
  waiting_.take_all(stale, [&](const Waiting& waiting) {
    ++counters_.stale;
    release_arrival(waiting.arrival);
  });
  partner.heard = true;
  partner.address.qkey = header.qkey.value();
  partner.their_life = header.source_life.value();
  partner.their_epoch = header.epoch.value();
  partner.expected = 0;
}

// It is the turn of this arrival: the oldest posted receive that matches takes it.
void Messenger::offer(std::uint32_t index) {
  const Arrival& arrival = arrivals_[index];
  const std::uint64_t from = key_of(partners_[arrival.partner].address);
  const std::uint64_t tag = arrival.header.tag.value();
  const auto receive = posted_.take_first([&](std::uint32_t candidate) {
    const ReceiveRecord& record = receives_[candidate];
    return ((record.tag ^ tag) & ~record.ignore) == 0 && (record.any_source || record.from == from);
  });
  if (receive) {
    begin_receive(*receive, index);
    return;
  }
  ++counters_.unexpected;
  WEFT_CHECK(waiting_.push({from, tag, index}));
}

// The tables are full. The sender of a request waits for an answer, and gets one if there is room
// at least for that.
void Messenger::refuse(const Header& header, const MessageAddress& from) {
  if (static_cast<Kind>(header.kind) != Kind::request) {
    return;
  }
  const std::uint32_t index = receives_.allocate();
  if (index == kNone) {
    return;
  }
  ReceiveRecord& record = receives_[index];
  record = ReceiveRecord{};
  record.to = from;
  record.header = header;
  answer(index, Status::receiver_not_ready);
}

// Posts the buffer again as a receive of the engine; without free buffers the engine refuses small
// messages, and their senders convert them to requests.
void Messenger::give_back(std::uint32_t buffer) {
  ReceiveRequest receive;
  receive.segments[0] = {data_buffers_.get() + buffer * engine_.max_send_size(),
                         static_cast<std::uint32_t>(engine_.max_send_size())};
  receive.cookie = cookie_of(Lane::data, buffer);
  WEFT_CHECK(engine_.post_receive(data_endpoint(), receive) == PostResult::accepted);
}

void Messenger::release_arrival(std::uint32_t index) {
  const Arrival& arrival = arrivals_[index];
  if (arrival.is_request()) {
    --partners_[arrival.partner].requests_held;
  } else {
    give_back(arrival.buffer);
  }
  arrivals_.release(index);
}

}  // namespace weft::srd
