// Owns the soft-RoCE device's control path: what may be made, with which limits, and how it is
// refused.
//
// Objects of the engine are named by numbers; those here (OwnedQp, OwnedCq ...) hold the program's
// side of them, the rings, and are found again by these numbers when the engine reports something.
#include <algorithm>
#include <cstring>

#include "emu/devices/rxe/objects.hpp"
#include "emu/kernel/user_memory.hpp"

namespace weft::devices::rxe {
namespace {

constexpr std::uint32_t kMaxSendsHeld = 1024;
constexpr std::uint32_t kAtomicWriteSize = sizeof(std::uint64_t);

// The rights that the device has. kAccessOptional are those that a device may ignore.
constexpr std::uint32_t kAccess = roce::kLocalWrite | roce::kRemoteWrite | roce::kRemoteRead |
                                  roce::kRemoteAtomic | roce::kWindowBind | roce::kZeroBased;

// Of a path that a command names; both forms say the same.
template <class Path>
roce::AddressVector address_vector(const Path& path) {
  roce::AddressVector to;
  to.destination.bytes = path.dgid;
  to.source_index = path.sgid_index;
  to.flow_label = path.flow_label;
  to.traffic_class = path.traffic_class;
  to.hop_limit = path.hop_limit;
  return to;
}

roce::QpAttributes attributes_of(const abi::ModifyQp& request) {
  roce::QpAttributes to;
  to.state = static_cast<roce::QpState>(request.qp_state);
  to.current_state = static_cast<roce::QpState>(request.cur_qp_state);
  to.sqd_event = request.en_sqd_async_notify != 0;
  to.access = request.access_flags;
  to.pkey_index = request.pkey_index;
  to.port = request.port_num;
  to.qkey = request.qkey;
  to.address = address_vector(request.dest);
  to.path_mtu = request.path_mtu;
  to.timeout = request.timeout;
  to.retry_count = request.retry_cnt;
  to.rnr_retry = request.rnr_retry;
  to.rq_psn = request.rq_psn;
  to.sq_psn = request.sq_psn;
  to.destination_qpn = request.dest_qp_num;
  to.max_reads = request.max_rd_atomic;
  to.max_dest_reads = request.max_dest_rd_atomic;
  to.min_rnr_timer = request.min_rnr_timer;
  return to;
}

}  // namespace

// A domain's number is never used twice: it is all by which the engine compares domains.
nic::Outcome<std::unique_ptr<kernel::Pd>> RxeDevice::alloc_pd(kernel::Udata& /*udata*/) {
  if (pds_ >= abilities_.max_pd) {
    return nic::refuse(ENOMEM);
  }
  return std::make_unique<OwnedPd>(*this, next_domain_++);
}

// A zero-based region is addressed from 0 on by peers, wherever it lies in the program.
roce::MemoryRegion RxeDevice::region_of(const kernel::Pd& pd,
                                        const kernel::MrRequest& request) const {
  return {.data = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(request.start)),
          .address = (request.access & roce::kZeroBased) != 0 ? 0 : request.iova,
          .length = request.length,
          .access = request.access & kAccess,
          .domain = static_cast<const OwnedPd&>(pd).domain};
}

nic::Outcome<std::unique_ptr<kernel::Mr>> RxeDevice::reg_mr(kernel::Pd& pd,
                                                            const kernel::MrRequest& request) {
  if ((request.access & ~(kAccess | abi::kAccessOptional)) != 0) {
    return nic::refuse(EOPNOTSUPP);
  }
  const std::uint32_t key =
      mrs_ < abilities_.max_mr ? engine_.keys().register_region(region_of(pd, request)) : 0;
  if (key == 0) {
    return nic::refuse(ENOMEM);
  }
  return std::make_unique<OwnedMr>(*this, key);
}

// The keys stay. What the region covers cannot be changed, as on Linux.
nic::Outcome<void> RxeDevice::rereg_mr(kernel::Mr& mr, std::uint32_t flags, kernel::Pd* pd,
                                       const kernel::MrRequest& request) {
  if ((flags & abi::kReregRange) != 0 ||
      ((flags & abi::kReregAccess) != 0 &&
       (request.access & ~(kAccess | abi::kAccessOptional)) != 0)) {
    return nic::refuse(EOPNOTSUPP);
  }
  // The object exists, so its key does.
  roce::MemoryRegion* const region = engine_.keys().find_region(mr.lkey);
  if ((flags & abi::kReregPd) != 0) {
    region->domain = static_cast<const OwnedPd&>(*pd).domain;
  }
  if ((flags & abi::kReregAccess) != 0) {
    region->access = request.access & kAccess;
  }
  return {};
}

nic::Outcome<std::unique_ptr<kernel::Mw>> RxeDevice::alloc_mw(kernel::Pd& pd, std::uint8_t type) {
  const std::uint32_t key = mws_ < abilities_.max_mw ? engine_.keys().allocate_window(
                                                           type, static_cast<OwnedPd&>(pd).domain)
                                                     : 0;
  if (key == 0) {
    return nic::refuse(ENOMEM);
  }
  return std::make_unique<OwnedMw>(*this, key);
}

// RoCE has no addresses within a subnet: a destination is always a GID.
template <class Path>
int RxeDevice::why_no_path(const Path& path) const {
  if (path.is_global == 0) {
    return EINVAL;
  }
  return path.sgid_index < gids_.size() ? 0 : ENODATA;
}

nic::Outcome<std::unique_ptr<kernel::Ah>> RxeDevice::create_ah(kernel::Pd& pd,
                                                               const abi::AhAttributes& attributes,
                                                               kernel::Udata& udata) {
  if (const int error = why_no_path(attributes); error != 0) {
    return nic::refuse(error);
  }
  if (ahs_.size() >= abilities_.max_ah) {
    return nic::refuse(ENOMEM);
  }
  auto ah = std::make_unique<OwnedAh>(*this, pd, address_vector(attributes));
  udata.answer(AhReply{ah->number, 0});
  return ah;
}

nic::Outcome<std::unique_ptr<kernel::Cq>> RxeDevice::create_cq(const kernel::FileServices& file,
                                                               const kernel::CqRequest& request,
                                                               kernel::Udata& udata) {
  if (request.cqe == 0 || request.cqe > abilities_.max_cqe) {
    return nic::refuse(EINVAL);
  }
  if (cqs_.size() >= abilities_.max_cq) {
    return nic::refuse(ENOMEM);
  }
  auto cq = std::make_unique<OwnedCq>(*this, file, request.cqe, request.has_channel);
  if (!cq->valid()) {
    return nic::refuse(ENOMEM);
  }
  udata.answer(CqReply{cq->map_info()});
  return cq;
}

// Completions that wait move to the new ring, in their order.
nic::Outcome<void> RxeDevice::resize_cq(kernel::Cq& cq, std::uint32_t cqe, kernel::Udata& udata) {
  auto& queue = static_cast<OwnedCq&>(cq);
  publish();
  if (cqe == 0 || cqe > abilities_.max_cqe || !queue.resize(cqe)) {
    return nic::refuse(EINVAL);
  }
  udata.answer(CqReply{queue.map_info()});
  return {};
}

nic::Outcome<void> RxeDevice::req_notify_cq(kernel::Cq& cq, bool solicited_only) {
  publish();  // what is over sends no event
  static_cast<OwnedCq&>(cq).arm(solicited_only);
  return {};
}

nic::Outcome<std::unique_ptr<kernel::Srq>> RxeDevice::create_srq(const kernel::FileServices& file,
                                                                 kernel::Pd& pd,
                                                                 const kernel::SrqRequest& request,
                                                                 kernel::Udata& udata) {
  if (request.max_wr == 0 || request.max_wr > abilities_.max_srq_wr ||
      request.max_sge > abilities_.max_sge || request.limit > request.max_wr) {
    return nic::refuse(EINVAL);
  }
  // One receive at a time, as in create_qp().
  const std::uint32_t id = srq_count_ < abilities_.max_srq
                               ? engine_.create_srq(1, std::max(request.max_sge, 1U))
                               : roce::kNoSrq;
  if (id == roce::kNoSrq) {
    return nic::refuse(ENOMEM);
  }
  auto srq = std::make_unique<OwnedSrq>(*this, file, pd, id, request);
  if (!srq->valid()) {
    return nic::refuse(ENOMEM);
  }
  srq->set_limit(request.limit);
  udata.answer(SrqReply{srq->map_info(), srq->number, 0});
  return srq;
}

nic::Outcome<void> RxeDevice::modify_srq(kernel::Srq& srq, const abi::ModifySrq& request,
                                         kernel::Udata& udata) {
  auto& queue = static_cast<OwnedSrq&>(srq);
  const bool resizes = (request.attr_mask & abi::kSrqMaxWr) != 0;
  const bool limits = (request.attr_mask & abi::kSrqLimit) != 0;
  const std::uint32_t most = resizes ? request.max_wr : queue.max_wr;
  if ((request.attr_mask & ~std::uint32_t{abi::kSrqMaxWr | abi::kSrqLimit}) != 0 ||
      (resizes && (request.max_wr == 0 || request.max_wr > abilities_.max_srq_wr)) ||
      (limits && request.limit > most) || (resizes && !limits && queue.limit() > most)) {
    return nic::refuse(EINVAL);
  }
  // Unlike that of RESIZE_CQ the reply has no room for the new ring: the library gives the address
  // of a word of its own. That is the program's memory, so it is checked before anything changes.
  if (resizes) {
    std::uint64_t place = 0;  // where the library wants to know of the new ring
    if (udata.in.size() < sizeof place) {
      return nic::refuse(EINVAL);
    }
    std::memcpy(&place, udata.in.data(), sizeof place);
    if (!kernel::user_range_ok(place, sizeof(MapInfo), true)) {
      return nic::refuse(EFAULT);
    }
    const auto ring = queue.resize(request.max_wr);
    if (!ring) {
      return nic::refuse(EINVAL);
    }
    if (!kernel::copy_to_user(place, std::as_bytes(std::span(&*ring, 1)))) {
      return nic::refuse(EFAULT);
    }
  }
  if (limits) {
    queue.set_limit(request.limit);
  }
  return {};
}

nic::Outcome<void> RxeDevice::query_srq(const kernel::Srq& srq, abi::QuerySrqReply& to) const {
  to.max_wr = srq.max_wr;
  to.max_sge = srq.max_sge;
  to.limit = static_cast<const OwnedSrq&>(srq).limit();
  return {};
}

// Segments and inline data share their room in an entry, so both get what the larger one needs.
nic::Outcome<QueuePair::Shape> RxeDevice::qp_shape(const kernel::QpRequest& request) const {
  const Abilities& d = abilities_;
  if (request.max_send_wr > d.max_qp_wr || request.max_send_sge > d.max_sge ||
      request.max_inline_data > d.max_inline) {
    return nic::refuse(EINVAL);
  }
  if (request.srq == nullptr &&
      (request.max_recv_wr > d.max_qp_wr || request.max_recv_sge > d.max_sge)) {
    return nic::refuse(EINVAL);
  }
  constexpr auto kSegment = static_cast<std::uint32_t>(sizeof(Sge));
  const std::uint32_t room = std::max(request.max_send_sge * kSegment, request.max_inline_data);
  QueuePair::Shape shape;
  shape.send_entries = request.max_send_wr;
  shape.send = {.sges = room / kSegment, .inline_data = room};
  shape.receive_entries = request.srq == nullptr ? request.max_recv_wr : 0;
  shape.receive_sges = request.srq == nullptr ? request.max_recv_sge : 0;
  shape.datagram = request.type == abi::kQpUd;
  return shape;
}

nic::Outcome<std::unique_ptr<kernel::Qp>> RxeDevice::create_qp(const kernel::FileServices& file,
                                                               const kernel::QpRequest& request,
                                                               kernel::Udata& udata) {
  if (request.type != abi::kQpRc && request.type != abi::kQpUc && request.type != abi::kQpUd) {
    return nic::refuse(EOPNOTSUPP);
  }
  const auto shape = qp_shape(request);
  if (!shape) {
    return nic::refuse(shape.error());
  }
  // The rings first: they can fail for want of memory, and the engine must not know a queue pair
  // without rings. Until enlist() it has no number, and its destructor leaves the engine alone.
  auto qp = std::make_unique<OwnedQp>(*this, file, *shape, request);
  if (!qp->valid()) {
    return nic::refuse(ENOMEM);
  }
  const auto* const srq = static_cast<const OwnedSrq*>(request.srq);
  // The engine holds the sends that are next, as many as can be under way, and only the next
  // receive: all others wait in their rings, which take no memory before they are used.
  const std::uint32_t number =
      engine_.create_qp({.type = static_cast<roce::QpType>(request.type),
                         .domain = qp->domain(),
                         .send_cq = static_cast<OwnedCq&>(*request.send_cq).id(),
                         .receive_cq = static_cast<OwnedCq&>(*request.recv_cq).id(),
                         .srq = srq != nullptr ? srq->id() : roce::kNoSrq,
                         .max_send = std::clamp(qp->send_capacity(), 1U, kMaxSendsHeld),
                         .max_receive = 1,
                         .max_send_sge = shape->send.sges,
                         .max_receive_sge = shape->receive_sges,
                         .max_inline = std::max(shape->send.inline_data, kAtomicWriteSize),
                         .signal_all = request.signal_all});
  if (number == 0) {
    return nic::refuse(ENOMEM);
  }
  qp->enlist(number);
  qp->max_send_wr = qp->send_capacity();
  qp->max_recv_wr = qp->receive_capacity();
  qp->max_send_sge = shape->send.sges;
  qp->max_recv_sge = shape->receive_sges;
  qp->max_inline_data = shape->send.inline_data;
  udata.answer(qp->describe());
  return qp;
}

// What is over is told before the state changes: a reset forgets the requests, and their
// completions would be lost with them.
nic::Outcome<void> RxeDevice::modify_qp(kernel::Qp& qp, const abi::ModifyQp& request) {
  auto& pair = static_cast<OwnedQp&>(qp);
  if ((request.attr_mask & roce::kMaskAddress) != 0) {
    if (const int error = why_no_path(request.dest); error != 0) {
      return nic::refuse(error);
    }
  }
  publish();
  const int error =
      engine_.modify_qp(last_now_, pair.number, request.attr_mask, attributes_of(request));
  if (error != 0) {
    return nic::refuse(error);
  }
  if ((request.attr_mask & roce::kMaskState) != 0 &&
      request.qp_state == static_cast<std::uint8_t>(roce::QpState::reset)) {
    pair.reset();
    pair.set_failed(false);
    std::erase(failed_, &pair);
  }
  return {};
}

// Tells everything, whatever the mask asks for, as Linux's driver does.
nic::Outcome<void> RxeDevice::query_qp(const kernel::Qp& qp, std::uint32_t /*mask*/,
                                       abi::QueryQp& to) const {
  const auto from = engine_.query_qp(qp.number);
  to.dest.dgid = from->address.destination.bytes;
  to.dest.flow_label = from->address.flow_label;
  to.dest.sgid_index = static_cast<std::uint8_t>(from->address.source_index);
  to.dest.hop_limit = from->address.hop_limit;
  to.dest.traffic_class = from->address.traffic_class;
  to.dest.is_global = 1;
  to.dest.port_num = 1;
  to.qp_state = to.cur_qp_state = static_cast<std::uint8_t>(from->state);
  to.qkey = from->qkey;
  to.rq_psn = from->rq_psn;
  to.sq_psn = from->sq_psn;
  to.dest_qp_num = from->destination_qpn;
  to.access_flags = from->access;
  to.pkey_index = from->pkey_index;
  to.path_mtu = from->path_mtu;
  to.sq_draining = from->draining ? 1 : 0;
  to.max_rd_atomic = from->max_reads;
  to.max_dest_rd_atomic = from->max_dest_reads;
  to.min_rnr_timer = from->min_rnr_timer;
  to.port_num = from->port;
  to.timeout = from->timeout;
  to.retry_cnt = from->retry_count;
  to.rnr_retry = from->rnr_retry;
  return {};
}

nic::Outcome<void> RxeDevice::attach_multicast(kernel::Qp& qp,
                                               const std::array<std::byte, 16>& group) {
  const srd::Address address{group};
  const std::size_t members = engine_.members_of(address);
  if (members >= kMaxGroupMembers || (members == 0 && engine_.groups() >= kMaxGroups)) {
    return nic::refuse(ENOMEM);
  }
  if (const int error = engine_.attach_multicast(qp.number, address); error != 0) {
    return nic::refuse(error);
  }
  if (members == 0 && on_group_ && !on_group_(address, true)) {
    (void)engine_.detach_multicast(qp.number, address);
    return nic::refuse(ENOMEM);
  }
  return {};
}

nic::Outcome<void> RxeDevice::detach_multicast(kernel::Qp& qp,
                                               const std::array<std::byte, 16>& group) {
  const srd::Address address{group};
  if (const int error = engine_.detach_multicast(qp.number, address); error != 0) {
    return nic::refuse(error);
  }
  if (engine_.members_of(address) == 0 && on_group_) {
    (void)on_group_(address, false);
  }
  return {};
}

}  // namespace weft::devices::rxe
