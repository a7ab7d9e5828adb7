// Owns what a program does with a connection: asking for it, accepting, rejecting, ending it.
//
// A connection of RC or UC is made by three messages (REQ, REP, RTU) and ended by two (DREQ, DREP);
// one of datagrams is asked for by SIDR_REQ and answered by SIDR_REP. Each call here checks the
// id's phase, writes the message, and moves on to the next phase; what the peer's messages do is in
// receive.cpp. Messages that have to be answered are sent again by the timer in send.cpp. Errors
// are Linux's.
#include <cerrno>

#include "emu/roce/cm/manager.hpp"
#include "emu/roce/cm/messages.hpp"

namespace weft::roce::cm {
namespace {

constexpr unsigned kAttachmentShift = 24;
constexpr std::uint32_t kNumberMask = (1U << kAttachmentShift) - 1;
constexpr std::uint8_t kOneHop = 0x08;  // beside the service level: the peer is in this subnet

// The messages that a rejection can be about.
constexpr std::uint8_t kAboutRequest = 0;
constexpr std::uint8_t kAboutReply = 1;
constexpr std::uint8_t kAboutNeither = 2;

// The transaction of what this side begins; an answer repeats that of the question.
std::uint64_t transaction_of(std::uint32_t local_id) { return std::uint64_t{1} << 32 | local_id; }

std::uint8_t three_bits(std::uint8_t count) { return std::min(count, kMaxQpRetries); }

// The IP addresses and the port that rdma_cm programs speak of, which the connection's GIDs do not
// say (annex 11 of the specification).
void put_ip_header(const Connection& id, wire::CmMessage& message) {
  wire::CmIpHeader header;
  header.ip_version = id.destination.is_v4() ? 4 : 6;
  header.port = id.binding.address.port;
  header.source = id.binding.address.ip;
  header.destination = id.destination.ip;
  wire::write_cm_ip_header(header, message);
}

}  // namespace

// The upper byte is the attachment, by which weftd finds the process that an answer is for. Numbers
// go round, so that a late message of a former connection finds no new one.
void Manager::give_local_id(std::uint32_t slot) {
  Connection& id = ids_[slot];
  const std::uint32_t upper = std::uint32_t{config_.nics[id.nic].attachment} << kAttachmentShift;
  do {
    next_number_ = (next_number_ + 1) & kNumberMask;
    id.local_id = upper | next_number_;
  } while (next_number_ == 0 || by_local_id_.find(id.local_id) != kNone);
  by_local_id_.insert(id.local_id, slot);
}

// A Q_Key is fixed with its first use; services for datagrams have a well-known one (rdma_cm's).
int Manager::set_qkey(Connection& id, std::uint32_t qkey) const {
  if (id.qkey != 0) {
    return qkey != 0 && qkey != id.qkey ? EINVAL : 0;
  }
  if (qkey != 0) {
    id.qkey = qkey;
  } else if (id.binding.space == PortSpace::udp || id.binding.space == PortSpace::ib) {
    id.qkey = kUdpQkey;
  }
  return 0;
}

int Manager::connect(TimePoint now, Handle handle, const ConnectParameters& parameters) {
  Connection& id = ids_[handle.value()];
  if (id.state != IdState::route_resolved) {
    return EINVAL;
  }
  id.local_qpn = parameters.qpn;
  id.srq = parameters.srq;
  return id.transport == Transport::ud ? send_sidr_request(now, handle.value(), parameters)
                                       : send_request(now, handle.value(), parameters);
}

// REQ: carries the program's private data behind the header that names its IP addresses and port.
int Manager::send_request(TimePoint now, std::uint32_t slot, const ConnectParameters& with) {
  Connection& id = ids_[slot];
  const LocalNic& nic = config_.nics[id.nic];
  Message message;
  message.kind = wire::CmKind::request;
  put_ip_header(id, message);
  if (!put_private_data(message, with.data.span(), wire::kIpHeaderSize)) {
    return EINVAL;
  }
  give_local_id(slot);
  id.transaction = transaction_of(id.local_id);
  id.responder_resources = with.responder_resources;
  id.initiator_depth = with.initiator_depth;
  id.retry_count = three_bits(with.retry_count);
  id.rnr_retry_count = three_bits(with.rnr_retry_count);
  id.av_timeout = static_cast<std::uint8_t>(id.path.lifetime + 1);
  id.max_retries = kMaxRetries;
  id.timeout = 2 * time_of(id.path.lifetime) + time_of(kResponseTimeout);

  message.transaction = id.transaction;
  message.local_id = id.local_id;
  message.service_id = service_id(id.binding.space, id.destination.port);
  message.ca_guid = nic.guid;
  message.qpn = id.local_qpn;
  message.starting_psn = id.sequence;
  message.responder_resources = id.responder_resources;
  message.initiator_depth = id.initiator_depth;
  message.remote_timeout = kResponseTimeout;
  message.local_timeout = kResponseTimeout;
  message.retry_count = id.retry_count;
  message.rnr_retry = id.rnr_retry_count;
  message.path_mtu = id.path.mtu;
  message.max_cm_retries = kMaxRetries;
  message.service = id.transport == Transport::uc ? 1 : 0;
  message.has_srq = id.srq;
  message.flow_control = with.flow_control;
  message.local_gid = id.path.source;
  message.remote_gid = id.path.destination;
  message.flow_label = id.path.flow_label;
  message.rate = id.path.rate;
  message.traffic_class = id.path.traffic_class;
  message.hop_limit = id.path.hop_limit;
  message.subnet_local = id.path.hop_limit <= 1 ? kOneHop : 0;
  message.ack_timeout = ack_timeout_of(nic.ack_delay, id.path.lifetime);
  id.state = IdState::connecting;
  id.phase = Phase::request_sent;
  id.refusals = 0;
  post_reliably(now, slot, message);
  return 0;
}

// SIDR_REQ: asks for the queue pair number and Q_Key of a datagram service; there is no connection.
int Manager::send_sidr_request(TimePoint now, std::uint32_t slot, const ConnectParameters& with) {
  Connection& id = ids_[slot];
  Message message;
  message.kind = wire::CmKind::sidr_request;
  put_ip_header(id, message);
  if (!put_private_data(message, with.data.span(), wire::kIpHeaderSize)) {
    return EINVAL;
  }
  give_local_id(slot);
  id.transaction = transaction_of(id.local_id);
  id.max_retries = kMaxRetries;
  id.timeout = time_of(kResponseTimeout);
  message.transaction = id.transaction;
  message.local_id = id.local_id;
  message.service_id = service_id(id.binding.space, id.destination.port);
  id.state = IdState::connecting;
  id.phase = Phase::sidr_sent;
  post_reliably(now, slot, message);
  return 0;
}

// Two meanings, by side: with parameters the passive side answers a request, without them the
// active side confirms a reply whose queue pair the library has brought up.
int Manager::accept(TimePoint now, Handle handle, const ConnectParameters* parameters) {
  const std::uint32_t slot = handle.value();
  Connection& id = ids_[slot];
  if (id.state != IdState::connecting) {
    return EINVAL;
  }
  if (parameters != nullptr) {
    id.local_qpn = parameters->qpn;
    id.srq = parameters->srq;
  }
  if (id.transport == Transport::ud) {
    return answer_sidr(slot, SidrStatus::success,
                       parameters != nullptr ? *parameters : ConnectParameters{});
  }
  const int error = parameters != nullptr ? send_reply(now, slot, *parameters) : send_ready(slot);
  if (error != 0) {
    (void)send_reject(now, slot, Reason::consumer,
                      {});  // in most phases there is nothing to reject
  }
  return error;
}

// REP: the passive side's answer, with the numbers of its queue pair.
int Manager::send_reply(TimePoint now, std::uint32_t slot, const ConnectParameters& with) {
  Connection& id = ids_[slot];
  if (id.phase != Phase::request_received) {
    return EINVAL;
  }
  Message message = answer_of(id, wire::CmKind::reply);
  if (!put_private_data(message, with.data.span())) {
    return EINVAL;
  }
  id.responder_resources = with.responder_resources;
  id.initiator_depth = with.initiator_depth;
  message.qpn = id.local_qpn;
  message.starting_psn = id.sequence;
  message.responder_resources = id.responder_resources;
  message.initiator_depth = id.initiator_depth;
  message.ack_delay = config_.nics[id.nic].ack_delay;
  message.flow_control = with.flow_control;
  message.rnr_retry = three_bits(with.rnr_retry_count);
  message.has_srq = id.srq;
  message.ca_guid = config_.nics[id.nic].guid;
  id.phase = Phase::reply_sent;
  post_reliably(now, slot, message);
  return 0;
}

// RTU: the connection stands. If it is lost, the first packet of the connection does the same at
// the passive side (establish()).
int Manager::send_ready(std::uint32_t slot) {
  Connection& id = ids_[slot];
  if (id.phase != Phase::reply_received) {
    return EINVAL;
  }
  id.phase = Phase::established;
  post(id, answer_of(id, wire::CmKind::ready_to_use));
  return 0;
}

// SIDR_REP. Kept like a reliable message but without a timer: it is repeated when the request is.
int Manager::answer_sidr(std::uint32_t slot, SidrStatus status, const ConnectParameters& with) {
  Connection& id = ids_[slot];
  if (id.phase != Phase::sidr_received) {
    return EINVAL;
  }
  Message message = answer_of(id, wire::CmKind::sidr_reply);
  if (!put_private_data(message, with.data.span())) {
    return EINVAL;
  }
  if (status == SidrStatus::success) {
    if (const int error = set_qkey(id, with.qkey); error != 0) {
      return error;
    }
    message.qpn = id.local_qpn;
    message.qkey = id.qkey;
  }
  message.local_id = id.remote_id;  // of the request
  message.remote_id = 0;
  message.status = static_cast<std::uint8_t>(status);
  message.service_id = id.service;
  id.phase = Phase::sidr_answered;
  wire::write_cm(message, id.mad);
  send_again(id);
  return 0;
}

// The program's own rejection; for datagrams a status does the same.
int Manager::reject(TimePoint now, Handle handle, Reason reason, const PrivateData& data) {
  const std::uint32_t slot = handle.value();
  if (ids_[slot].transport == Transport::ud) {
    ConnectParameters parameters;
    parameters.data = data;
    return answer_sidr(slot, SidrStatus::rejected, parameters);
  }
  return send_reject(now, slot, reason, data.span());
}

// Which message is rejected follows from the phase. After a REP the peer may already send, so the
// id rests; before it there is nothing to wait for.
int Manager::send_reject(TimePoint now, std::uint32_t slot, Reason reason,
                         std::span<const std::byte> data) {
  Connection& id = ids_[slot];
  Message message = answer_of(id, wire::CmKind::reject);
  message.reason = static_cast<std::uint16_t>(reason);
  message.refused_kind = kAboutNeither;
  if (!put_private_data(message, data)) {
    return EINVAL;
  }
  switch (id.phase) {
    case Phase::request_received:
      message.refused_kind = kAboutRequest;
      break;
    case Phase::reply_received:
      message.refused_kind = kAboutReply;
      break;
    case Phase::request_sent:
    case Phase::reply_sent:
      break;
    default:
      return EINVAL;
  }
  stop_timer(slot);
  post(id, message);
  if (id.phase == Phase::reply_sent) {
    enter_timewait(now, slot);
  } else {
    // Only who asks again hears the data again.
    reset(now, slot, reason,
          id.phase == Phase::request_received ? data : std::span<const std::byte>{});
  }
  return 0;
}

// Also right when the peer has begun to disconnect: then this is the answer.
int Manager::disconnect(TimePoint now, Handle handle) {
  const std::uint32_t slot = handle.value();
  const Phase phase = ids_[slot].phase;
  if (phase == Phase::idle && ids_[slot].local_id == 0) {
    return EINVAL;  // it never was connected
  }
  if (send_disconnect(now, slot) != 0) {
    (void)send_disconnect_reply(now, slot);  // or there is nothing left to end
  }
  return 0;
}

int Manager::send_disconnect(TimePoint now, std::uint32_t slot) {
  if (ids_[slot].phase != Phase::established) {
    return EINVAL;
  }
  post_reliably(now, slot, disconnect_of(slot));
  return 0;
}

// DREQ, of an established id, which waits for its answer from now on.
Manager::Message Manager::disconnect_of(std::uint32_t slot) {
  Connection& id = ids_[slot];
  id.transaction = transaction_of(id.local_id);
  id.phase = Phase::disconnect_sent;
  Message message = answer_of(id, wire::CmKind::disconnect_request);
  message.qpn = id.remote_qpn;
  return message;
}

// DREP, in answer to the peer's DREQ. The id rests afterwards, since copies of both may still come.
int Manager::send_disconnect_reply(TimePoint now, std::uint32_t slot) {
  Connection& id = ids_[slot];
  if (id.phase != Phase::disconnect_received) {
    return EINVAL;
  }
  post(id, answer_of(id, wire::CmKind::disconnect_reply));
  enter_timewait(now, slot);
  return 0;
}

// An id goes. No answer is awaited, because nobody would be left to act on it. So a good-bye is
// said twice: it may be lost, and the peer would wait for ever.
void Manager::part(TimePoint now, std::uint32_t slot) {
  Connection& id = ids_[slot];
  switch (mutated(Mutation::leave_silently) ? Phase::idle : id.phase) {
    case Phase::request_sent: {
      // A REQ is taken back by a rejection for timeout, which names the sender by its GUID: the
      // peer may not have told us its own number yet.
      Message message = answer_of(id, wire::CmKind::reject);
      message.reason = static_cast<std::uint16_t>(Reason::timeout);
      message.refused_kind = kAboutNeither;
      const std::uint64_t guid = config_.nics[id.nic].guid;
      message.information_length = sizeof guid;
      for (std::size_t i = 0; i < sizeof guid; ++i) {
        message.information[i] = static_cast<std::byte>(guid >> (56 - 8 * i));
      }
      post(id, message);
      break;
    }
    case Phase::request_received:
    case Phase::reply_received:
      (void)send_reject(now, slot, Reason::consumer, {});
      break;
    case Phase::reply_sent: {
      // The peer may count on the connection already, and then it sends nothing that would be
      // answered.
      Message message = answer_of(id, wire::CmKind::reject);
      message.reason = static_cast<std::uint16_t>(Reason::consumer);
      message.refused_kind = kAboutNeither;
      wire::write_cm(message, id.mad);
      post_last_words(id, /*are_said_before=*/false);
      break;
    }
    case Phase::established:
      wire::write_cm(disconnect_of(slot), id.mad);
      post_last_words(id, /*are_said_before=*/false);
      break;
    case Phase::disconnect_sent:
      post_last_words(id, /*are_said_before=*/true);
      break;
    case Phase::disconnect_received:
      (void)send_disconnect_reply(now, slot);
      break;
    case Phase::sidr_received:
      (void)answer_sidr(slot, SidrStatus::rejected, {});
      break;
    case Phase::idle:
    case Phase::timewait:
    case Phase::sidr_sent:
    case Phase::sidr_answered:
      break;
  }
  forget_peer(now, slot, Reason::stale_connection);
}

// The RTU has come, or the queue pair has heard the peer's first packet, which says the same.
int Manager::establish(Handle handle) {
  const std::uint32_t slot = handle.value();
  Connection& id = ids_[slot];
  if (id.phase == Phase::established && !mutated(Mutation::establish_twice)) {
    return EISCONN;
  }
  if (id.phase != Phase::reply_sent && !mutated(Mutation::establish_twice)) {
    return EINVAL;
  }
  stop_timer(slot);
  id.phase = Phase::established;
  if (id.state == IdState::connecting) {
    tell(slot, EventKind::established);
  }
  return 0;
}

}  // namespace weft::roce::cm
