// Owns the NIC's data path: from a work request to the engine, and from the engine's completions
// back.
//
// post_send() and post_receive() allocate a Context, which remembers the program's wr_id and the
// regions that the work holds; its index travels through the engine as the cookie.
// next_completion() finds the context again by it, turns the engine's status into one that a NIC
// reports, and releases it. A queue pair that was reset meanwhile has a new generation, by which
// late completions of the old one are recognised and dropped.
#include <algorithm>
#include <cstring>

#include "emu/nic/nic.hpp"
#include "srd/base/check.hpp"
#include "srd/base/lent_memory.hpp"

namespace weft::nic {
namespace {

// The first kGrhSize bytes of a datagram's receive are zeroed; the payload follows them.
[[nodiscard]] WorkStatus reserve_grh(srd::ReceiveSegments& segments) {
  std::uint32_t left = kGrhSize;
  for (srd::Segment& segment : segments) {
    const std::uint32_t take = std::min(left, segment.length);
    if (take > 0 && !touch_lent(segment.data, take, [&] { std::memset(segment.data, 0, take); })) {
      return WorkStatus::bad_local_key;
    }
    segment.data += take;
    segment.length -= take;
    left -= take;
  }
  return left == 0 ? WorkStatus::ok : WorkStatus::local_length;
}

// Datagrams use the reliable transport, too. One that finds no posted receive is retried for about
// two milliseconds, because a receiver may be without a core for that long, and then dropped. Its
// sender is not told.
constexpr std::uint8_t kDatagramRetry = 6;

}  // namespace

// Several statuses of the engine are one to an application: a NIC says no more.
WorkStatus to_work_status(srd::Status status) {
  switch (status) {
    case srd::Status::ok:
      return WorkStatus::ok;
    case srd::Status::bad_qpn:
    case srd::Status::bad_qkey:  // without the Q_Key a sender does not see the queue pair
      return WorkStatus::remote_bad_qpn;
    case srd::Status::receiver_not_ready:
    case srd::Status::responder_busy:
      return WorkStatus::remote_not_ready;
    case srd::Status::length_error:
      return WorkStatus::remote_length;
    case srd::Status::bad_key:
    case srd::Status::out_of_bounds:
    case srd::Status::access_denied:
      return WorkStatus::remote_bad_key;
    case srd::Status::feature_mismatch:
      return WorkStatus::remote_feature;
    case srd::Status::unknown_peer:
      return WorkStatus::remote_unknown_peer;
    case srd::Status::flushed:
      return WorkStatus::flushed;
    case srd::Status::peer_restarted:
      return WorkStatus::remote_restarted;
    case srd::Status::unresponsive:
      return WorkStatus::unresponsive;
    case srd::Status::unreachable:
      return WorkStatus::unreachable;
    case srd::Status::local_protection:
      return WorkStatus::bad_local_key;
  }
  return WorkStatus::local_qp_error;
}

// Turns scatter/gather entries into memory. Each entry counts as a user of its region, so that
// deregister() knows whether there is work in the engine to end. The first entry that is wrong ends
// it; release() gives back what was counted until then.
WorkStatus Nic::resolve(const DatagramQp& qp, std::span<const Sge> sges, srd::Access access,
                        Context& user, std::span<srd::Segment> segments, std::uint64_t& length) {
  std::size_t used = 0;
  for (const Sge& sge : sges) {
    if (sge.length == 0) {
      continue;
    }
    const srd::RegionKey key{sge.key};
    const auto found = domains_.table().resolve(key, sge.address, sge.length, access, qp.init_.pd);
    if (found.status != srd::Status::ok) {
      return WorkStatus::bad_local_key;
    }
    user.keys[used] = key;
    ++region_users_[domains_.table().index_of(key)];
    segments[used++] = srd::Segment{found.data, sge.length};
    length += sge.length;
  }
  return WorkStatus::ok;
}

// The parts of a request that do not depend on the peer: operation, memory, length. Inline data is
// copied here, because the program may overwrite it as soon as the post returns.
WorkStatus Nic::prepare(const DatagramQp& qp, const SendWork& work, std::uint32_t context,
                        srd::SegmentList& segments) {
  Context& kept = contexts_[context];
  std::uint64_t length = 0;
  if (work.operation == Operation::oversized) {
    return WorkStatus::local_length;
  }
  if (work.operation == Operation::invalid ||
      (qp.init_.type == QpType::ud && work.operation != Operation::send)) {
    return WorkStatus::unsupported_operation;
  }
  if ((work.operation == Operation::rdma_read && (!config_.rdma_read || work.inline_data)) ||
      (work.operation == Operation::rdma_write && !config_.rdma_write)) {
    return WorkStatus::unsupported_operation;
  }
  if (work.inline_data) {
    if (work.inline_data->size() > kMaxInline) {
      return WorkStatus::local_length;
    }
    kept.inline_data = inline_data_.allocate();  // there is one for every context
    InlineData& data = inline_data_[kept.inline_data];
    std::copy(work.inline_data->begin(), work.inline_data->end(), data.begin());
    length = work.inline_data->size();
    segments[0] = srd::Segment{data.data(), static_cast<std::uint32_t>(length)};
  } else {
    const auto access =
        work.operation == Operation::rdma_read ? srd::Access::local_write : srd::Access::none;
    const WorkStatus status =
        resolve(qp, std::span(work.sges).first(work.sge_count), access, kept, segments, length);
    if (status != WorkStatus::ok) {
      return status;
    }
  }
  const std::uint64_t most = work.operation == Operation::send
                                 ? static_cast<std::uint64_t>(engine_.max_send_size())
                                 : config_.max_rdma_size;
  kept.length = static_cast<std::uint32_t>(length);
  return length > most ? WorkStatus::local_length : WorkStatus::ok;
}

// An address handle names a NIC; which process on it is meant follows from the queue pair's number.
srd::PeerId Nic::peer_of(AddressHandle& ah, std::uint32_t qpn) {
  const std::uint32_t attachment = qpn / config_.qpn_count;
  if (attachment >= ah.peers.size()) {
    ah.peers.resize(attachment + 1, kNoPeer);
  }
  srd::PeerId& peer = ah.peers[attachment];
  if (peer == kNoPeer) {
    const auto made =
        engine_.peer(ah.address, srd::AttachmentId{static_cast<std::uint16_t>(attachment)});
    if (made) {
      peer = *made;
    }
  }
  return peer;
}

std::uint32_t Nic::new_context(DatagramQp& qp, std::uint64_t wr_id, Operation operation) {
  const std::uint32_t index = contexts_.allocate();
  if (index != Slab<Context>::kNone) {
    contexts_[index] =
        Context{.qp = &qp, .wr_id = wr_id, .generation = qp.generation_, .operation = operation};
  }
  return index;
}

void Nic::release(std::uint32_t context) {
  const Context& kept = contexts_[context];
  if (kept.inline_data != kNone) {
    inline_data_.release(kept.inline_data);
  }
  for (const srd::RegionKey key : kept.keys) {
    if (key == srd::RegionKey{}) {
      break;
    }
    --region_users_[domains_.table().index_of(key)];
  }
  contexts_.release(context);
}

// For work that never enters the engine. Its completion comes before those of the engine.
void Nic::complete_locally(DatagramQp& qp, const SendWork& work, WorkStatus status,
                           std::uint32_t length) {
  local_.push_back(WorkCompletion{.qp = &qp,
                                  .wr_id = work.wr_id,
                                  .status = status,
                                  .operation = work.operation,
                                  .length = length});
}

// Work for this very NIC where loopback is off: a NIC without it sends such packets and never sees
// them again, so the work completes well and nothing arrives.
bool Nic::vanishes(const DatagramQp& qp, const SendWork& work) const {
  const auto& ah = handles_[work.ah];
  return !config_.loopback && ah.pd == qp.init_.pd && ah.address == config_.address;
}

// Checks in the order of a NIC: state, address handle, the request itself, the peer. What fails a
// check is completed with an error, and so is taken all the same.
bool Nic::post_send(DatagramQp& qp, const SendWork& work) {
  if (qp.state_ == QpState::error) {
    complete_locally(qp, work, WorkStatus::flushed, 0);
    return true;
  }
  AddressHandle* const ah = find_ah(qp.init_.pd, work.ah);
  if (ah == nullptr) {
    complete_locally(qp, work, WorkStatus::bad_ah, 0);
    return true;
  }
  const std::uint32_t context = new_context(qp, work.wr_id, work.operation);
  if (context == Slab<Context>::kNone) {
    return false;
  }
  srd::SegmentList segments{};
  WorkStatus status = prepare(qp, work, context, segments);
  if (status == WorkStatus::ok && vanishes(qp, work)) {
    complete_locally(qp, work, WorkStatus::ok, contexts_[context].length);
    release(context);
    return true;
  }
  srd::PeerId peer = kNoPeer;
  if (status == WorkStatus::ok) {
    peer = peer_of(*ah, work.destination);
    status = peer == kNoPeer ? WorkStatus::unreachable : WorkStatus::ok;
  }
  if (status != WorkStatus::ok) {
    release(context);
    complete_locally(qp, work, status, 0);
    return true;
  }
  const srd::PostResult posted = post_to_engine(qp, work, peer, context, segments);
  if (posted == srd::PostResult::accepted) {
    ++qp.outstanding_;
    return true;
  }
  release(context);
  if (posted == srd::PostResult::queue_full) {
    return false;
  }
  complete_locally(
      qp, work,
      posted == srd::PostResult::too_long ? WorkStatus::local_length : WorkStatus::local_qp_error,
      0);
  return true;
}

// The engine's three kinds of requests. An operation without one never gets here: prepare() has
// refused it.
srd::PostResult Nic::post_to_engine(const DatagramQp& qp, const SendWork& work, srd::PeerId peer,
                                    std::uint32_t context, const srd::SegmentList& segments) {
  const srd::RequestBase base{
      .peer = peer,
      .source = srd::Qpn{qp.number_},
      .destination = srd::Qpn{work.destination},
      .qkey = work.qkey,
      .cookie = context,
      .rnr_retry = qp.init_.type == QpType::ud ? kDatagramRetry : qp.attributes_.rnr_retry};
  switch (work.operation) {
    case Operation::send: {
      srd::SendRequest request{base, segments, work.immediate};
      return engine_.post(request);
    }
    case Operation::rdma_write: {
      srd::WriteRequest request{
          base,           segments, work.remote_address, srd::RegionKey{work.remote_key},
          work.immediate, false};
      return engine_.post(request);
    }
    case Operation::rdma_read: {
      srd::ReadRequest request{base, segments, work.remote_address,
                               srd::RegionKey{work.remote_key}};
      return engine_.post(request);
    }
    case Operation::receive:
    case Operation::receive_write_immediate:
    case Operation::invalid:
    case Operation::oversized:
      break;
  }
  WEFT_CHECK(false);
}

// A receive on a queue pair without endpoint (in RESET or ERR) ends as flushed.
bool Nic::post_receive(DatagramQp& qp, const ReceiveWork& work) {
  const std::uint32_t context = new_context(qp, work.wr_id, Operation::receive);
  if (context == Slab<Context>::kNone) {
    return false;
  }
  WorkStatus status = WorkStatus::ok;
  srd::ReceiveSegments segments{};
  std::uint64_t length = 0;
  if (!qp.open_) {
    status = WorkStatus::flushed;
  } else {
    status = resolve(qp, std::span(work.sges).first(work.sge_count), srd::Access::local_write,
                     contexts_[context], segments, length);
  }
  if (status == WorkStatus::ok && qp.init_.type == QpType::ud) {
    status = reserve_grh(segments);
  }
  if (status != WorkStatus::ok) {
    release(context);
    local_.push_back(WorkCompletion{
        .qp = &qp, .wr_id = work.wr_id, .status = status, .operation = Operation::receive});
    return true;
  }
  if (engine_.post_receive(srd::Qpn{qp.number_}, srd::ReceiveRequest{segments, context}) !=
      srd::PostResult::accepted) {
    release(context);
    return false;
  }
  ++qp.outstanding_;
  return true;
}

std::uint16_t Nic::Handles::find(const srd::Address& address) {
  if (!found_is_valid || found_for != address) {
    const auto known = numbers.find(address);
    found = known != numbers.end() ? known->second : kUnknownAh;
    found_for = address;
    found_is_valid = true;
  }
  return found;
}

// The sender, as a receive completion shows it. The address handle is looked up among those of the
// queue pair's domain, as libraries want the number that the program itself has made.
void Nic::fill_source(const srd::Completion& from, WorkCompletion& to) {
  to.source_qpn = from.remote.value();
  to.length = from.length + (to.qp->init_.type == QpType::ud ? kGrhSize : 0);
  to.has_immediate = from.has_immediate;
  to.immediate = from.immediate;
  if (to.status != WorkStatus::ok) {
    return;
  }
  to.source = engine_.key_of(from.peer).address;
  to.source_ah = handles_of(to.qp->init_.pd).find(to.source);
}

// A write with immediate data that took no receive: there is no context, and the endpoint tells the
// queue pair.
bool Nic::translate_unsolicited(const srd::Completion& from, WorkCompletion& to) {
  const std::uint32_t index = from.endpoint.value() - config_.first_qpn;
  DatagramQp* const qp = index < qps_.size() ? qps_[index].get() : nullptr;
  if (qp == nullptr || !qp->open_) {
    return false;
  }
  to = WorkCompletion{.qp = qp,
                      .status = to_work_status(from.status),
                      .operation = Operation::receive_write_immediate,
                      .unsolicited = true};
  fill_source(from, to);
  return true;
}

// The context is given back first, whether anybody hears of the completion or not.
bool Nic::translate(const srd::Completion& from, WorkCompletion& to) {
  if (from.kind == srd::Completion::Kind::receive_write_imm && !from.consumed_receive) {
    return translate_unsolicited(from, to);
  }
  const auto index = static_cast<std::uint32_t>(from.cookie);
  const Context& kept = contexts_[index];
  DatagramQp& qp = *kept.qp;
  const bool current = qp.used_ && kept.generation == qp.generation_;
  to = WorkCompletion{.qp = &qp,
                      .wr_id = kept.wr_id,
                      .status = to_work_status(from.status),
                      .operation = kept.operation,
                      .length = kept.length};
  release(index);
  --qp.outstanding_;
  if (!current) {
    return false;
  }
  if (to.operation == Operation::receive) {
    if (from.kind == srd::Completion::Kind::receive_write_imm) {
      to.operation = Operation::receive_write_immediate;
    }
    fill_source(from, to);
  } else if (qp.init_.type == QpType::ud && to.status != WorkStatus::flushed &&
             to.status != WorkStatus::bad_local_key) {
    to.status = WorkStatus::ok;  // the sender of a datagram is never told its fate
  }
  return true;
}

bool Nic::next_completion(WorkCompletion& completion) {
  if (!local_.empty()) [[unlikely]] {
    completion = local_.front();
    local_.pop_front();
    return true;
  }
  while (const srd::Completion* const ended = engine_.next_completion()) {
    const bool told = translate(*ended, completion);
    engine_.pop_completion();
    if (told) {
      return true;
    }
  }
  return false;
}

std::size_t Nic::poll(std::span<WorkCompletion> completions) {
  std::size_t count = 0;
  while (count < completions.size() && next_completion(completions[count])) {
    ++count;
  }
  return count;
}

}  // namespace weft::nic
