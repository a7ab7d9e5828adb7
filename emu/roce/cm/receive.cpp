// Owns what messages of connections do to ids. They may be anything: what fits no id is counted.
//
// handle() sorts messages by kind. Each handler finds the id (by its own number, and where the
// message names it, by the peer's), asks whether its phase expects this message, and otherwise
// decides whether it is a copy of one that was answered, which is then answered again, or a stray.
#include <cerrno>

#include "emu/roce/cm/manager.hpp"
#include "emu/roce/cm/messages.hpp"

namespace weft::roce::cm {
namespace {

constexpr std::uint8_t kAboutRequest = 0;
constexpr std::uint8_t kAboutReply = 1;
// Of a request that found no listener: a quarter of a second in all.
constexpr std::uint8_t kMaxRefusals = 8;
constexpr Duration kFirstPause = std::chrono::milliseconds{1};

}  // namespace

void Manager::on_mad(TimePoint now, const srd::Address& from, const srd::Address& to,
                     std::span<const std::byte> mad) {
  ++counters_.received;
  Message message;
  if (wire::parse_cm(mad, message) != wire::MadFault::none || find_address(to) == nullptr) {
    ++counters_.malformed;
    return;
  }
  handle({now, from, to, message});
}

void Manager::handle(const Arrival& arrival) {
  switch (arrival.message.kind) {
    case wire::CmKind::request:
      return handle_request(arrival);
    case wire::CmKind::message_received:
      return handle_acknowledgement(arrival);
    case wire::CmKind::reject:
      return handle_reject(arrival);
    case wire::CmKind::reply:
      return handle_reply(arrival);
    case wire::CmKind::ready_to_use:
      return handle_ready(arrival);
    case wire::CmKind::disconnect_request:
      return handle_disconnect(arrival);
    case wire::CmKind::disconnect_reply:
      return handle_disconnect_reply(arrival);
    case wire::CmKind::sidr_request:
      return handle_sidr_request(arrival);
    case wire::CmKind::sidr_reply:
      return handle_sidr_reply(arrival);
  }
}

// By our own number first. The peer's number must fit, too, unless it is not known yet
// (`with_remote_id` false: then it must still be 0), and the sender's address: numbers can be
// guessed.
std::uint32_t Manager::find(const Arrival& arrival, bool with_remote_id) const {
  const Message& message = arrival.message;
  const std::uint32_t slot = by_local_id_.find(message.remote_id);
  if (slot == kNone || ids_[slot].path.destination != arrival.from ||
      ids_[slot].remote_id != (with_remote_id ? message.local_id : 0)) {
    return kNone;
  }
  return slot;
}

// For a message that has found no id, so nothing of an id is put into it.
void Manager::refuse(const Arrival& arrival, Reason reason, std::span<const std::byte> data) {
  Message answer;
  answer.kind = wire::CmKind::reject;
  answer.transaction = arrival.message.transaction;
  answer.remote_id = arrival.message.local_id;
  answer.refused_kind = arrival.message.kind == wire::CmKind::reply ? kAboutReply : kAboutRequest;
  answer.reason = static_cast<std::uint16_t>(reason);
  (void)put_private_data(answer, data);  // it had room when it was first said
  ++counters_.refused;
  std::array<std::byte, wire::kMadSize> mad;
  wire::write_cm(answer, mad);
  post(arrival.to, arrival.from, 0, mad);
}

// The order matters: a copy of a REQ is recognised before anything that would refuse it, and a
// connection that has ended before its queue pair is looked for.
void Manager::handle_request(const Arrival& arrival) {
  const Message& message = arrival.message;
  const RemoteKey key{message.ca_guid, message.local_id};
  if (const auto same = by_remote_id_.find(key);
      same != by_remote_id_.end() && !mutated(Mutation::hear_twice)) {
    return handle_again(same->second, arrival);
  }
  if (const auto before = ended_.find(key);
      before != ended_.end() && before->second.until > arrival.now &&
      before->second.peer == arrival.from && before->second.sequence == message.starting_psn &&
      !mutated(Mutation::forget_the_refused)) {
    ++counters_.duplicates;
    return refuse(arrival, before->second.reason, before->second.data);
  }
  if (const auto old = by_remote_qpn_.find({message.ca_guid, message.qpn});
      old != by_remote_qpn_.end()) {
    return end_stale(old->second, arrival);
  }
  wire::CmIpHeader header;
  const std::uint32_t listener = find_listener(arrival, header);
  if (listener == kNone) {
    return;
  }
  const bool is_uc = ids_[listener].transport == Transport::uc;
  if (message.service != (is_uc ? 1 : 0) || ids_[listener].transport == Transport::ud) {
    return refuse(arrival, Reason::consumer);
  }
  // What the path is to be must be what it was sent along.
  if (message.local_gid != arrival.from || message.remote_gid != arrival.to) {
    return refuse(arrival, Reason::invalid_gid);
  }
  welcome(listener, arrival, header);
}

// The peer's queue pair cannot have two connections, so that it must have left the old one. Others
// cannot say that of it.
void Manager::end_stale(std::uint32_t old, const Arrival& arrival) {
  refuse(arrival, Reason::stale_connection);
  if (ids_[old].path.destination == arrival.from) {
    (void)send_disconnect(arrival.now, old);
  }
}

// A copy of a REQ. While the program has not decided, an MRA asks the peer for patience (Linux
// sends it at this point, too); after the REP the answer was lost.
void Manager::handle_again(std::uint32_t slot, const Arrival& arrival) {
  Connection& id = ids_[slot];
  ++counters_.duplicates;
  if (id.phase == Phase::request_received) {
    Message answer = answer_of(id, wire::CmKind::message_received);
    answer.refused_kind = kAboutRequest;
    answer.service_timeout = kMraTimeout;
    post(id, answer);
  } else if (id.phase == Phase::reply_sent && id.path.destination == arrival.from) {
    send_again(id);
  }
}

// A listener with a wildcard address takes any destination, or only those of its own family.
// Without room the request is dropped: it will be sent again.
std::uint32_t Manager::find_listener(const Arrival& arrival, wire::CmIpHeader& header) {
  const bool datagram = arrival.message.kind == wire::CmKind::sidr_request;
  const auto [first, last] = listeners_.equal_range(arrival.message.service_id);
  const bool readable = wire::read_ip_header(arrival.message, header);
  for (auto at = first; readable && at != last; ++at) {
    const Connection& id = ids_[at->second];
    const bool any =
        id.binding.address.is_any() &&
        (!id.binding.own_family || id.binding.address.is_v4() == header.destination.is_v4());
    if (!any && id.binding.address.ip != header.destination) {
      continue;
    }
    if ((id.waiting >= id.backlog && !mutated(Mutation::overfill)) ||
        ids_.used() >= config_.max_ids) {
      ++counters_.no_room;  // without an answer: there may be room when it is sent again
      return kNone;
    }
    return at->second;
  }
  if (!datagram) {
    refuse(arrival, first == last ? Reason::invalid_service : Reason::consumer);
    return kNone;
  }
  Message answer;
  answer.kind = wire::CmKind::sidr_reply;
  answer.transaction = arrival.message.transaction;
  answer.local_id = arrival.message.local_id;
  answer.service_id = arrival.message.service_id;
  answer.status =
      static_cast<std::uint8_t>(first == last ? SidrStatus::unsupported : SidrStatus::rejected);
  ++counters_.refused;
  std::array<std::byte, wire::kMadSize> mad;
  wire::write_cm(answer, mad);
  post(arrival.to, arrival.from, 0, mad);
  return kNone;
}

// Makes the passive side's id, which takes its options over from the listener.
std::uint32_t Manager::accept_stranger(std::uint32_t listener, const Arrival& arrival,
                                       const wire::CmIpHeader& header) {
  const std::uint32_t slot = allocate();  // find_listener() has seen that there is room
  Connection& id = ids_[slot];
  Connection& from = ids_[listener];
  id.state = IdState::connecting;
  id.transport = from.transport;
  id.binding = from.binding;
  id.binding.address.ip = header.destination;
  id.destination = {header.source, header.port, true};
  id.traffic_class = from.traffic_class;
  const LocalAddress& own = *find_address(arrival.to);
  id.has_nic = true;
  id.nic = own.nic;
  id.path.gid_index = own.gid_index;
  id.path.source = arrival.to;
  id.path.destination = arrival.from;
  id.remote_id = arrival.message.local_id;
  id.transaction = arrival.message.transaction;
  id.service = arrival.message.service_id;
  ++from.waiting;
  return slot;
}

void Manager::welcome(std::uint32_t listener, const Arrival& arrival,
                      const wire::CmIpHeader& header) {
  const Message& message = arrival.message;
  const std::uint32_t slot = accept_stranger(listener, arrival, header);
  give_local_id(slot);
  Connection& id = ids_[slot];
  id.phase = Phase::request_received;
  id.has_path = true;
  id.path.flow_label = message.flow_label;
  id.path.traffic_class = message.traffic_class;
  id.path.hop_limit = message.hop_limit;
  id.path.mtu = message.path_mtu;
  id.path.rate = message.rate;
  id.path.lifetime =
      static_cast<std::uint8_t>(message.ack_timeout > 0 ? message.ack_timeout - 1 : 0);
  id.av_timeout = static_cast<std::uint8_t>(id.path.lifetime + 1);
  id.remote_guid = message.ca_guid;
  id.remote_qpn = message.qpn;
  id.send_sequence = message.starting_psn;
  // What one side answers the other asks: resources and depth change places.
  id.initiator_depth = message.responder_resources;
  id.responder_resources = message.initiator_depth;
  id.retry_count = message.retry_count;
  id.rnr_retry_count = message.rnr_retry;
  id.timeout = time_of(message.local_timeout);
  id.max_retries = message.max_cm_retries;
  by_remote_id_.emplace(RemoteKey{id.remote_guid, id.remote_id}, slot);
  by_remote_qpn_.emplace(RemoteKey{id.remote_guid, id.remote_qpn}, slot);
  id.knows_remote_id = id.knows_remote_qpn = true;

  Event event;
  event.kind = EventKind::connect_request;
  event.id = Handle{listener};
  event.connection = Handle{slot};
  event.parameters.data = private_data_of(message, wire::kIpHeaderSize);
  event.parameters.qpn = message.qpn;
  event.parameters.srq = message.has_srq;
  event.parameters.flow_control = message.flow_control;
  event.parameters.responder_resources = id.responder_resources;
  event.parameters.initiator_depth = id.initiator_depth;
  event.parameters.retry_count = message.retry_count;
  event.parameters.rnr_retry_count = message.rnr_retry;
  events_.push_back(event);
}

// A REP may come in time, again (the RTU was lost), or for an id that has given up.
void Manager::handle_reply(const Arrival& arrival) {
  const std::uint32_t slot = find(arrival, false);
  if (slot == kNone) {
    return handle_reply_again(arrival);
  }
  if (ids_[slot].phase != Phase::request_sent) {
    ++counters_.unexpected;
    return;
  }
  const Message& message = arrival.message;
  if (by_remote_id_.contains({message.ca_guid, message.local_id})) {
    ++counters_.duplicates;
    return;
  }
  if (const auto old = by_remote_qpn_.find({message.ca_guid, message.qpn});
      old != by_remote_qpn_.end()) {
    return end_stale(old->second, arrival);
  }
  take_reply(slot, arrival);
}

// The REP brings the peer's numbers; from here on the id is found by them, too.
void Manager::take_reply(std::uint32_t slot, const Arrival& arrival) {
  const Message& message = arrival.message;
  Connection& id = ids_[slot];
  stop_timer(slot);
  id.phase = Phase::reply_received;
  id.remote_id = message.local_id;
  id.remote_guid = message.ca_guid;
  id.remote_qpn = message.qpn;
  id.send_sequence = message.starting_psn;
  id.initiator_depth = message.responder_resources;
  id.responder_resources = message.initiator_depth;
  id.rnr_retry_count = message.rnr_retry;
  id.target_ack_delay = message.ack_delay;
  id.av_timeout = ack_timeout_of(id.target_ack_delay, static_cast<std::uint8_t>(id.av_timeout - 1));
  by_remote_id_.emplace(RemoteKey{id.remote_guid, id.remote_id}, slot);
  by_remote_qpn_.emplace(RemoteKey{id.remote_guid, id.remote_qpn}, slot);
  id.knows_remote_id = id.knows_remote_qpn = true;

  Event event;
  event.kind = EventKind::connect_response;
  event.id = Handle{slot};
  event.parameters.data = private_data_of(message);
  event.parameters.qpn = message.qpn;
  event.parameters.srq = message.has_srq;
  event.parameters.flow_control = message.flow_control;
  event.parameters.responder_resources = id.responder_resources;
  event.parameters.initiator_depth = id.initiator_depth;
  event.parameters.rnr_retry_count = message.rnr_retry;
  events_.push_back(event);
}

void Manager::handle_reply_again(const Arrival& arrival) {
  const std::uint32_t slot = find(arrival);
  if (slot == kNone) {
    ++counters_.unexpected;
    return;
  }
  const Connection& id = ids_[slot];
  ++counters_.duplicates;
  if (id.phase == Phase::established) {
    if (mutated(Mutation::say_ready_once)) {
      return;
    }
    post(id, answer_of(id, wire::CmKind::ready_to_use));
  } else if (id.phase == Phase::reply_received) {
    Message answer = answer_of(id, wire::CmKind::message_received);
    answer.refused_kind = kAboutReply;
    answer.service_timeout = kMraTimeout;
    post(id, answer);
  }
}

// An RTU that comes twice is only counted.
void Manager::handle_ready(const Arrival& arrival) {
  const std::uint32_t slot = find(arrival);
  if (slot == kNone ||
      (ids_[slot].phase != Phase::reply_sent && !mutated(Mutation::establish_twice))) {
    ++(slot == kNone ? counters_.unexpected : counters_.duplicates);
    return;
  }
  (void)establish(Handle{slot});
}

std::uint64_t Manager::guid_in(const Message& reject) {
  std::uint64_t guid = 0;
  for (std::size_t i = 0; i < sizeof guid; ++i) {
    guid = guid << 8 | std::to_integer<std::uint64_t>(reject.information[i]);
  }
  return guid;
}

// A rejection for timeout names its sender's GUID, since the receiver's number may not be known to
// it.
std::uint32_t Manager::find_timed_out(const Arrival& arrival) const {
  const auto found = by_remote_id_.find({guid_in(arrival.message), arrival.message.local_id});
  return found == by_remote_id_.end() || ids_[found->second].path.destination != arrival.from
             ? kNone
             : found->second;
}

// No id listens there, or not yet. Programs that agree on a port over another connection rely on
// the milliseconds that it takes to resolve an address and a route elsewhere, and here it takes
// none. So the request is sent again, after waits that double, before the program hears of it.
bool Manager::asks_again(TimePoint now, std::uint32_t slot, const Message& message) {
  Connection& id = ids_[slot];
  if (id.phase != Phase::request_sent || id.refusals == kMaxRefusals ||
      message.reason != static_cast<std::uint16_t>(Reason::invalid_service)) {
    return false;
  }
  ++id.retries_left;  // it was answered
  deadlines_.set(slot, now + kFirstPause * (1 << id.refusals++));
  return true;
}

// A REJ says which message it refuses; only the phase that waits for that one hears of it.
void Manager::handle_reject(const Arrival& arrival) {
  const Message& message = arrival.message;
  const std::uint32_t slot = message.reason == static_cast<std::uint16_t>(Reason::timeout)
                                 ? find_timed_out(arrival)
                                 : find(arrival, message.refused_kind != kAboutRequest);
  if (slot == kNone) {
    ++counters_.unexpected;
    return;
  }
  if (asks_again(arrival.now, slot, message)) {
    return;
  }
  Connection& id = ids_[slot];
  const bool stale = message.reason == static_cast<std::uint16_t>(Reason::stale_connection);
  switch (id.phase) {
    case Phase::request_sent:
    case Phase::request_received:
    case Phase::reply_sent:
      stop_timer(slot);
      if (stale && id.phase != Phase::request_sent) {
        enter_timewait(arrival.now, slot);
      } else {
        reset(arrival.now, slot, Reason::stale_connection);
      }
      break;
    case Phase::reply_received:
    case Phase::established:  // it left before it heard that we are ready
    case Phase::disconnect_sent:
      enter_timewait(arrival.now, slot);
      break;
    default:
      ++counters_.unexpected;
      return;
  }
  if (id.state == IdState::connecting) {
    tell(slot, EventKind::rejected, message.reason, private_data_of(message));
  }
}

// MRA: the peer has the message and needs longer. The timer only moves; tries are not given back.
void Manager::handle_acknowledgement(const Arrival& arrival) {
  const Message& message = arrival.message;
  const bool of_request = message.refused_kind == kAboutRequest;
  const std::uint32_t slot = find(arrival, !of_request);
  if (slot == kNone || ids_[slot].phase != (of_request ? Phase::request_sent : Phase::reply_sent)) {
    ++counters_.unexpected;
    return;
  }
  Connection& id = ids_[slot];
  id.mad_timeout = time_of(message.service_timeout) + time_of(id.av_timeout);
  deadlines_.set(slot, arrival.now + id.mad_timeout);
}

// A DREQ is answered by the program's own disconnect(), except where the id is over or unknown
// here: then the answer was lost, and the peer would repeat its question until it gives up.
void Manager::handle_disconnect(const Arrival& arrival) {
  const Message& message = arrival.message;
  const std::uint32_t slot = find(arrival);
  if (slot == kNone) {  // it has ended here, and the answer did not arrive
    ++counters_.duplicates;
    if (mutated(Mutation::ignore_good_byes)) {
      return;
    }
    Message answer;
    answer.kind = wire::CmKind::disconnect_reply;
    answer.transaction = message.transaction;
    answer.local_id = message.remote_id;
    answer.remote_id = message.local_id;
    std::array<std::byte, wire::kMadSize> mad;
    wire::write_cm(answer, mad);
    return post(arrival.to, arrival.from, 0, mad);
  }
  Connection& id = ids_[slot];
  if (message.qpn != id.local_qpn) {
    ++counters_.unexpected;
    return;
  }
  switch (id.phase) {
    case Phase::reply_sent:
    case Phase::established:
    case Phase::disconnect_sent:
      break;
    case Phase::timewait: {
      ++counters_.duplicates;
      Message answer = answer_of(id, wire::CmKind::disconnect_reply);
      answer.transaction = message.transaction;
      return post(id, answer);
    }
    default:
      ++(id.phase == Phase::disconnect_received ? counters_.duplicates : counters_.unexpected);
      return;
  }
  stop_timer(slot);
  id.phase = Phase::disconnect_received;
  id.transaction = message.transaction;
  if (id.state == IdState::connecting) {
    id.state = IdState::disconnected;
    tell(slot, EventKind::disconnected);
  }
}

// Also where both sides asked at the same time (disconnect_received).
void Manager::handle_disconnect_reply(const Arrival& arrival) {
  const std::uint32_t slot = find(arrival);
  if (slot == kNone || (ids_[slot].phase != Phase::disconnect_sent &&
                        ids_[slot].phase != Phase::disconnect_received)) {
    ++counters_.unexpected;
    return;
  }
  enter_timewait(arrival.now, slot);
  Connection& id = ids_[slot];
  if (id.state == IdState::connecting) {
    id.state = IdState::disconnected;
    tell(slot, EventKind::disconnected);
  }
}

// By the sender's address and number, since there is no connection to find it by.
void Manager::handle_sidr_request(const Arrival& arrival) {
  const auto same = by_sidr_.find({arrival.from.words(), arrival.message.local_id});
  if (same != by_sidr_.end()) {
    ++counters_.duplicates;
    if (ids_[same->second].phase == Phase::sidr_answered) {
      send_again(ids_[same->second]);
    }
    return;
  }
  wire::CmIpHeader header;
  const std::uint32_t listener = find_listener(arrival, header);
  if (listener == kNone) {
    return;
  }
  const std::uint32_t slot = accept_stranger(listener, arrival, header);
  Connection& id = ids_[slot];
  id.phase = Phase::sidr_received;
  id.answers_sidr = true;
  by_sidr_.emplace(SidrKey{arrival.from.words(), id.remote_id}, slot);

  Event event;
  event.kind = EventKind::connect_request;
  event.id = Handle{listener};
  event.connection = Handle{slot};
  event.datagram = true;
  event.parameters.data = private_data_of(arrival.message, wire::kIpHeaderSize);
  events_.push_back(event);
}

// The answer ends the exchange; the id stays in state `connecting`, as Linux leaves it.
void Manager::handle_sidr_reply(const Arrival& arrival) {
  const Message& message = arrival.message;
  const std::uint32_t slot = by_local_id_.find(message.local_id);
  if (slot == kNone || ids_[slot].phase != Phase::sidr_sent ||
      ids_[slot].path.destination != arrival.from) {
    ++counters_.unexpected;
    return;
  }
  Connection& id = ids_[slot];
  reset(arrival.now, slot, Reason::stale_connection);
  if (id.state != IdState::connecting) {
    return;
  }
  if (message.status != static_cast<std::uint8_t>(SidrStatus::success)) {
    return tell(slot, EventKind::unreachable, message.status, private_data_of(message));
  }
  if (const int error = set_qkey(id, message.qkey); error != 0) {
    return tell(slot, EventKind::address_error, -error);
  }
  Event event;
  event.kind = EventKind::established;
  event.id = Handle{slot};
  event.datagram = true;
  event.path = id.path;
  event.parameters.data = private_data_of(message);
  event.parameters.qpn = message.qpn;
  event.parameters.qkey = message.qkey;
  events_.push_back(event);
}

}  // namespace weft::roce::cm
