// Owns which attributes a queue pair gets in which state, as the kernel's connection manager gives
// them (INIT_QP_ATTR). The library applies them unchanged, so a wrong one shows as a connection
// that does not come up, or loses packets.
#include <cerrno>

#include "emu/roce/cm/manager.hpp"

namespace weft::roce::cm {
namespace {

constexpr std::uint32_t kRemoteWrite = 2;
constexpr std::uint32_t kRemoteRead = 4;
constexpr std::uint32_t kRemoteAtomic = 8;

// The phases in which the peer's numbers are known.
bool has_peer(Phase phase) {
  return phase == Phase::request_received || phase == Phase::reply_received ||
         phase == Phase::reply_sent || phase == Phase::established;
}

void ready_to_receive(const Connection& id, QpSettings& settings) {
  settings.mask = kMaskState | kMaskAddress | kMaskPathMtu | kMaskDestQpn | kMaskRqPsn;
  settings.path = id.path;
  settings.path_mtu = id.path.mtu;
  settings.destination_qpn = id.remote_qpn;
  settings.rq_psn = id.sequence;
  if (id.transport == Transport::rc) {
    settings.mask |= kMaskMaxDestReads | kMaskMinRnrTimer;
    settings.max_destination_reads = id.responder_resources;
  }
}

// Both sides chose their own first number and told the other: what arrives begins with ours, what
// is sent with the peer's.
void ready_to_send(const Connection& id, QpSettings& settings) {
  settings.mask = kMaskState | kMaskSqPsn;
  settings.sq_psn = mutated(Mutation::mix_numbers) ? id.sequence : id.send_sequence;
  if (id.transport == Transport::rc) {
    settings.mask |= kMaskTimeout | kMaskRetryCount | kMaskRnrRetry | kMaskMaxReads;
    settings.timeout = id.ack_timeout_set ? id.ack_timeout : id.av_timeout;
    settings.retry_count = id.retry_count;
    settings.rnr_retry = id.rnr_retry_count;
    settings.max_reads = id.initiator_depth;
  }
}

}  // namespace

int Manager::qp_settings(Handle handle, std::uint32_t state, QpSettings& settings) {
  Connection& id = ids_[handle.value()];
  settings = QpSettings{};
  settings.state = state;
  // Datagram ids, and ids that have not asked yet, only get what INIT needs.
  if (id.transport == Transport::ud || id.local_id == 0) {  // before there is a connection
    settings.mask = kMaskState | kMaskPkeyIndex | kMaskPort;
    if (id.transport == Transport::ud) {
      const int error = set_qkey(id, 0);
      settings.mask |= kMaskQkey;
      settings.qkey = id.qkey;
      return error;
    }
    settings.mask |= kMaskAccess;
    return 0;
  }
  switch (state) {
    case kQpInit:
      if (!has_peer(id.phase) && id.phase != Phase::request_sent) {
        return EINVAL;
      }
      settings.mask = kMaskState | kMaskAccess | kMaskPkeyIndex | kMaskPort;
      settings.access =
          kRemoteWrite | (id.responder_resources > 0 ? kRemoteRead | kRemoteAtomic : 0U);
      return 0;
    case kQpRtr:
    case kQpRts:
      if (!has_peer(id.phase)) {
        return EINVAL;
      }
      state == kQpRtr ? ready_to_receive(id, settings) : ready_to_send(id, settings);
      return 0;
    default:
      return EINVAL;
  }
}

}  // namespace weft::roce::cm
