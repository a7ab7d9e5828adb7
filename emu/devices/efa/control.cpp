// Owns the EFA device's control path: what may be made, with which limits, and how it is refused.
//
// EOPNOTSUPP says that this generation of device does not have it, EINVAL that the request is
// wrong, ENOMEM that the device has no more: libraries and tests look at the difference. Replies
// hold the keys under which the library maps rings and doorbells.
#include <bit>
#include <cstring>

#include "emu/devices/efa/objects.hpp"

namespace weft::devices::efa {
namespace {

bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

// Reads the library's words; a shorter version of them leaves the rest zero. What a longer version
// says beyond ours must be nothing.
template <class T>
bool take(const kernel::Udata& udata, std::size_t least, T& value) {
  if (udata.in.size() < least) {
    return false;
  }
  const std::size_t known = std::min(udata.in.size(), sizeof value);
  std::memcpy(&value, udata.in.data(), known);
  return is_zero(udata.in.subspan(known)) && is_zero(std::as_bytes(std::span(value.reserved)));
}

}  // namespace

nic::Outcome<std::unique_ptr<kernel::Pd>> EfaDevice::alloc_pd(kernel::Udata& udata) {
  const auto number = nic_.allocate_pd();
  if (!number) {
    return nic::refuse(number.error());
  }
  udata.answer(NumberReply{0, static_cast<std::uint16_t>(*number), 0});
  return std::make_unique<EfaPd>(nic_, *number);
}

// A right that the profile does not have is refused as unsupported.
nic::Outcome<std::unique_ptr<kernel::Mr>> EfaDevice::reg_mr(kernel::Pd& pd,
                                                            const kernel::MrRequest& request) {
  const std::uint32_t known = abi::kAccessLocalWrite |
                              (abilities_.rdma_read ? abi::kAccessRemoteRead : 0U) |
                              (abilities_.rdma_write ? abi::kAccessRemoteWrite : 0U);
  const std::uint32_t asked = request.access & ~abi::kAccessOptional;
  if ((asked & ~known) != 0) {
    return nic::refuse(EOPNOTSUPP);
  }
  if (domains_.table().size() >= abilities_.max_mr) {
    return nic::refuse(ENOMEM);
  }
  srd::Access access = srd::Access::none;
  const auto grant = [&](std::uint32_t flag, srd::Access right) {
    access = (asked & flag) != 0 ? access | right : access;
  };
  grant(abi::kAccessLocalWrite, srd::Access::local_write);
  grant(abi::kAccessRemoteRead, srd::Access::remote_read);
  grant(abi::kAccessRemoteWrite, srd::Access::remote_write);
  const auto key = nic_.register_memory(
      srd::Region{.data = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(request.start)),
                  .address = request.iova,
                  .length = request.length,
                  .access = access,
                  .domain = static_cast<EfaPd&>(pd).number});
  if (!key) {
    return nic::refuse(key.error());
  }
  return std::make_unique<EfaMr>(nic_, *key);
}

// A port has one GID; the address follows from the peer's.
nic::Outcome<std::unique_ptr<kernel::Ah>> EfaDevice::create_ah(kernel::Pd& pd,
                                                               const abi::AhAttributes& attributes,
                                                               kernel::Udata& udata) {
  if (attributes.is_global == 0 || attributes.sgid_index != 0) {
    return nic::refuse(EINVAL);
  }
  srd::Address gid;
  gid.bytes = attributes.dgid;
  const std::uint32_t domain = static_cast<EfaPd&>(pd).number;
  // Only the NIC is named here. Which process on it is meant follows from the queue pair number of
  // each request (Nic::peer_of()), so one address handle reaches all processes of a NIC.
  const auto number = nic_.create_ah(domain, address_of(gid));
  if (!number) {
    return nic::refuse(number.error());
  }
  udata.answer(NumberReply{0, *number, 0});
  return std::make_unique<EfaAh>(nic_, domain, *number);
}

nic::Outcome<std::unique_ptr<kernel::Cq>> EfaDevice::create_cq(const kernel::FileServices& file,
                                                               const kernel::CqRequest& request,
                                                               kernel::Udata& udata) {
  CqCommand command{};
  if (!take(udata, sizeof command, command)) {
    return nic::refuse(EINVAL);
  }
  const auto known =
      static_cast<std::uint8_t>((abilities_.cq_notifications ? kCqWithChannelFlag : 0) |
                                (abilities_.cq_with_sgid ? kCqWithSgidFlag : 0) |
                                (abilities_.request_id_64 ? kCqRequestId64Flag : 0));
  const bool channel = request.has_channel;
  if ((command.flags & ~known) != 0 || (channel && !abilities_.cq_notifications)) {
    return nic::refuse(EOPNOTSUPP);
  }
  const bool good_size = command.entry_size == kShortCqe || command.entry_size == sizeof(Cqe);
  const bool sgid = (command.flags & kCqWithSgidFlag) != 0;
  if (command.comp_mask != 0 || !good_size || (sgid && command.entry_size != sizeof(Cqe)) ||
      command.sub_cqs != 1 || request.cqe == 0 || request.cqe > abilities_.max_cqe) {
    return nic::refuse(EINVAL);
  }
  if (cqs_.size() >= abilities_.max_cq) {
    return nic::refuse(ENOMEM);
  }
  auto cq = std::make_unique<OwnedCq>(
      *this, file.queues,
      CompletionQueue::Shape{.entries = std::bit_ceil(request.cqe),
                             .entry_size = command.entry_size,
                             .source_gid = sgid,
                             .request_id_64 = (command.flags & kCqRequestId64Flag) != 0,
                             .channel = channel});
  if (!cq->valid()) {
    return nic::refuse(ENOMEM);
  }
  CqReply reply{};
  reply.comp_mask = kCqHasDoorbell;
  reply.ring_key = cq->ring().key;
  reply.ring_size = cq->ring().size;
  reply.cq_index = next_cq_++;
  reply.doorbell_key = cq->doorbell().key;
  udata.answer(reply);
  return cq;
}

// The library has rounded sizes up to powers of two before it asks; anything else is a mistake.
nic::Outcome<QueuePair::Shape> EfaDevice::qp_shape(const kernel::QpRequest& request,
                                                   const QpCommand& command) const {
  const Abilities& d = abilities_;
  QueuePair::Shape shape;
  shape.request_id_64 = (command.flags & kQpRequestId64Flag) != 0;
  if (request.max_send_wr > d.max_sq_wr || request.max_recv_wr > d.max_rq_wr ||
      request.max_send_sge > d.max_sq_sge || request.max_recv_sge > d.max_rq_sge) {
    return nic::refuse(EINVAL);
  }
  if (request.max_send_wr > 0) {
    // The command does not say how large a work request is: it follows.
    shape.sq_entries = request.max_send_wr;
    shape.wqe_size = command.sq_ring_size / request.max_send_wr;
    const bool wide = shape.wqe_size == kWideWqeSize && d.inline_size_wide > 0;
    if (!std::has_single_bit(shape.sq_entries) || (shape.wqe_size != kWqeSize && !wide) ||
        command.sq_ring_size % request.max_send_wr != 0) {
      return nic::refuse(EINVAL);
    }
    if (request.max_inline_data > (wide ? d.inline_size_wide : d.inline_size)) {
      return nic::refuse(EINVAL);
    }
  }
  if (request.max_recv_wr > 0) {
    shape.rq_descriptors =
        command.rq_ring_size / static_cast<std::uint32_t>(sizeof(ReceiveDescriptor));
    if (!std::has_single_bit(shape.rq_descriptors) || shape.rq_descriptors > kMaxDescriptors ||
        shape.rq_descriptors < request.max_recv_wr) {
      return nic::refuse(EINVAL);
    }
  }
  return shape;
}

nic::Outcome<std::unique_ptr<kernel::Qp>> EfaDevice::create_qp(const kernel::FileServices& file,
                                                               const kernel::QpRequest& request,
                                                               kernel::Udata& udata) {
  QpCommand command{};
  if (!take(udata, kShortQpCommand, command)) {
    return nic::refuse(EINVAL);
  }
  // The verbs have no name for SRD: it is the driver's own type 0.
  const bool srd = request.type == abi::kQpDriver && command.driver_type == 0;
  if (!srd && request.type != abi::kQpUd) {
    return nic::refuse(EOPNOTSUPP);
  }
  const auto known =
      static_cast<std::uint16_t>((abilities_.unsolicited_write ? kQpUnsolicitedWriteFlag : 0) |
                                 (abilities_.request_id_64 ? kQpRequestId64Flag : 0));
  if (command.comp_mask != 0) {
    return nic::refuse(EINVAL);
  }
  if ((command.flags & ~known) != 0) {
    return nic::refuse(EOPNOTSUPP);
  }
  const auto shape = qp_shape(request, command);
  if (!shape) {
    return nic::refuse(shape.error());
  }
  const auto made = nic_.create_qp(
      nic::QpInit{.type = srd ? nic::QpType::srd : nic::QpType::ud,
                  .pd = static_cast<EfaPd&>(*request.pd).number,
                  .receive_depth = shape->rq_descriptors,
                  .unsolicited_immediate = (command.flags & kQpUnsolicitedWriteFlag) != 0});
  if (!made) {
    return nic::refuse(made.error());
  }
  auto qp = std::make_unique<OwnedQp>(*this, **made, file, *shape,
                                      static_cast<CompletionQueue&>(*request.send_cq),
                                      static_cast<CompletionQueue&>(*request.recv_cq));
  if (!qp->valid()) {
    return nic::refuse(ENOMEM);
  }
  // By the base class, because publish() casts the pointer back to that.
  nic_.set_owner(**made, static_cast<QueuePair*>(qp.get()));
  qp->max_send_wr = request.max_send_wr;
  qp->max_recv_wr = request.max_recv_wr;
  qp->max_send_sge = request.max_send_sge;
  qp->max_recv_sge = request.max_recv_sge;
  qp->max_inline_data = request.max_inline_data;
  QpReply reply{};
  qp->describe(reply);
  udata.answer(reply);
  return qp;
}

nic::Outcome<void> EfaDevice::modify_qp(kernel::Qp& qp, const abi::ModifyQp& request) {
  auto& pair = static_cast<QueuePair&>(qp);
  // What the application rang for before this command belongs to the state before it; receives that
  // are late on purpose come later still.
  fetch_sends();
  if (late_receives_ == Duration::zero()) {
    fetch_receives({});
  }
  const auto outcome = nic_.modify_qp(pair.qp(), request.attr_mask,
                                      nic::QpAttributes{.state = request.qp_state,
                                                        .current_state = request.cur_qp_state,
                                                        .port = request.port_num,
                                                        .rnr_retry = request.rnr_retry,
                                                        .pkey_index = request.pkey_index,
                                                        .qkey = request.qkey,
                                                        .sq_psn = request.sq_psn});
  if (outcome && pair.qp().state() == nic::QpState::reset) {
    pair.reset();
  }
  // However late they are: in error receives end at once.
  if (outcome && pair.qp().state() == nic::QpState::error && !pair.fetch_receives({}, {})) {
    fail(pair);
  }
  return outcome;
}

nic::Outcome<void> EfaDevice::query_qp(const kernel::Qp& qp, std::uint32_t mask,
                                       abi::QueryQp& to) const {
  // What Linux's driver can tell. Like that driver it refuses other questions instead of answering
  // zero.
  constexpr std::uint32_t kKnown = nic::kMaskState | nic::kMaskPkeyIndex | nic::kMaskPort |
                                   nic::kMaskQkey | nic::kMaskSqPsn | nic::kMaskCap |
                                   nic::kMaskRnrRetry;
  if ((mask & ~kKnown) != 0) {
    return nic::refuse(EOPNOTSUPP);
  }
  const nic::DatagramQp& from = static_cast<const QueuePair&>(qp).qp();
  const nic::QpAttributes& attributes = from.attributes();
  to.qp_state = to.cur_qp_state = static_cast<std::uint8_t>(from.state());
  to.qkey = attributes.qkey;
  to.sq_psn = attributes.sq_psn;
  to.port_num = attributes.port;
  to.pkey_index = attributes.pkey_index;
  to.rnr_retry = attributes.rnr_retry;
  return {};
}

}  // namespace weft::devices::efa
