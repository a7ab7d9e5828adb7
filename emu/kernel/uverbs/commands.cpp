// Owns the meaning of each command, as far as it is the same for every type of device.
//
// Every handler has the same shape: read the request, find the objects that its handles name, check
// what Linux's core checks, call the device, take the device's answer into the reply, and make the
// new object known under a handle.
#include <algorithm>
#include <cerrno>

#include "emu/kernel/user_memory.hpp"
#include "emu/kernel/uverbs/call.hpp"

// Each refuses what is wrong whatever the device is, in the order of Linux's core, because programs
// look for the errno; the device sees the rest. A reply is written into `call`, and reaches the
// application only if the command succeeds.
namespace weft::kernel {
namespace {

bool is_qp_type(std::uint8_t type) {
  switch (type) {
    case abi::kQpRc:
    case abi::kQpUc:
    case abi::kQpUd:
    case abi::kQpRawPacket:
    case abi::kQpXrcInitiator:
    case abi::kQpXrcTarget:
    case abi::kQpDriver:
      return true;
    default:
      return false;
  }
}

// Whether a region's range is wrong for any device; an errno, or 0. Start and iova (the address by
// which peers name the region) must lie at the same place within a page.
int why_no_range(std::uint64_t start, std::uint64_t length, std::uint64_t iova) {
  constexpr std::uint64_t kInPage = 0xFFF;
  const bool bad = length == 0 || (start & kInPage) != (iova & kInPage) || start + length < start ||
                   iova + length < iova;
  return bad ? EINVAL : 0;
}
// A region that peers may change must be writable here as well.
int why_no_access(std::uint32_t access) {
  constexpr std::uint32_t kChangeable = abi::kAccessRemoteWrite | abi::kAccessRemoteAtomic;
  const bool remote_writable_only =
      (access & kChangeable) != 0 && (access & abi::kAccessLocalWrite) == 0;
  const bool unheard_of = (access & ~(abi::kAccessKnown | abi::kAccessOptional)) != 0;
  return remote_writable_only || unheard_of ? EINVAL : 0;
}

}  // namespace

// A file has one context. Its reply brings the descriptor on which asynchronous events arrive.
Outcome<void> UverbsFile::get_context(Call& call) {
  if (has_context_) {
    return refuse(EINVAL);
  }
  const auto own = device_.get_context(call.udata);
  if (!own) {
    return own;
  }
  const int fd = async_.open();
  if (fd < 0) {
    return refuse(errno);
  }
  has_context_ = true;
  ++device_.statistics().live.contexts;
  device_.remember(async_);
  call.answer(static_cast<std::uint32_t>(fd));
  call.answer(device_.completion_vectors());
  return {};
}

Outcome<void> UverbsFile::query_device(Call& call) {
  abi::QueryDevice attributes{};
  device_.query_device(attributes);
  call.answer(attributes);
  return {};
}

// The reply has the length of the kernel's; what emulated devices lack is zero in it.
Outcome<void> UverbsFile::query_device_extended(Call& call) {
  if (call.read<std::uint64_t>() != 0) {  // comp_mask and reserved
    return refuse(EINVAL);
  }
  abi::QueryDevice attributes{};
  device_.query_device(attributes);
  call.answer(attributes);
  call.answer(std::uint32_t{0});  // comp_mask
  call.answer(static_cast<std::uint32_t>(abi::kExtendedQueryDeviceSize));
  call.reply.resize(abi::kExtendedQueryDeviceSize);  // no paging on demand, no clock, no offloads
  return device_.query_device_extended(call.udata);
}

// A port that does not exist is the device's to refuse: only it knows how many it has.
Outcome<void> UverbsFile::query_port(Call& call) {
  abi::QueryPort attributes{};
  const auto known = device_.query_port(call.read<std::uint8_t>(8), attributes);
  call.answer(attributes);
  return known;
}

// A protection domain is what regions, queue pairs and address handles must have in common to be
// used together.
Outcome<void> UverbsFile::alloc_pd(Call& call) {
  if (!says_nothing_more(call.udata)) {
    return refuse(EINVAL);
  }
  auto pd = device_.alloc_pd(call.udata);
  if (!pd) {
    return refuse(pd.error());
  }
  call.answer(insert(std::move(*pd)));
  return {};
}

Outcome<void> UverbsFile::dealloc_pd(Call& call) {
  return destroy(call.read<std::uint32_t>(), ObjectKind::pd);
}

// Memory that cannot be reached is EFAULT here, as from a kernel that pins it; later it may still
// go away (lent_memory.hpp).
Outcome<void> UverbsFile::reg_mr(Call& call) {
  const auto request = call.read<abi::RegMr>();
  if (!says_nothing_more(call.udata) ||
      why_no_range(request.start, request.length, request.hca_va) != 0 ||
      why_no_access(request.access_flags) != 0) {
    return refuse(EINVAL);
  }
  Pd* const pd = find<Pd>(request.pd, ObjectKind::pd);
  if (pd == nullptr) {
    return refuse(nothing_of_the_kind(request.pd));
  }
  if (!user_range_ok(request.start, request.length,
                     (request.access_flags & abi::kAccessLocalWrite) != 0)) {
    return refuse(EFAULT);
  }
  auto mr = device_.reg_mr(
      *pd, MrRequest{request.start, request.length, request.hca_va, request.access_flags});
  if (!mr) {
    return refuse(mr.error());
  }
  (*mr)->use(*pd);
  const std::uint32_t lkey = (*mr)->lkey;
  const std::uint32_t rkey = (*mr)->rkey;
  call.answer(insert(std::move(*mr)));
  call.answer(lkey);
  call.answer(rkey);
  return {};
}

// The flags say which of range, domain and access change; the rest of the request is not looked at.
Outcome<void> UverbsFile::rereg_mr(Call& call) {
  const auto request = call.read<abi::ReregMr>();
  Mr* const mr = find<Mr>(request.handle, ObjectKind::mr);
  const auto says = [&request](abi::ReregFlag flag) { return (request.flags & flag) != 0; };
  if (request.flags == 0 || (request.flags & ~std::uint32_t{abi::kReregKnown}) != 0 ||
      mr == nullptr || !says_nothing_more(call.udata)) {
    return refuse(EINVAL);
  }
  Pd* const pd = says(abi::kReregPd) ? find<Pd>(request.pd, ObjectKind::pd) : nullptr;
  if ((says(abi::kReregPd) && pd == nullptr) ||
      (says(abi::kReregAccess) && why_no_access(request.access_flags) != 0) ||
      (says(abi::kReregRange) &&
       why_no_range(request.start, request.length, request.hca_va) != 0)) {
    return refuse(EINVAL);
  }
  if (says(abi::kReregRange) && !user_range_ok(request.start, request.length, false)) {
    return refuse(EFAULT);
  }
  if (mr->busy()) {
    return refuse(EBUSY);
  }
  const auto done = device_.rereg_mr(
      *mr, request.flags, pd,
      MrRequest{request.start, request.length, request.hca_va, request.access_flags});
  if (!done) {
    return done;
  }
  if (pd != nullptr) {
    mr->use_only(*pd);
  }
  call.answer(mr->lkey);
  call.answer(mr->rkey);
  return {};
}

Outcome<void> UverbsFile::dereg_mr(Call& call) {
  return destroy(call.read<std::uint32_t>(), ObjectKind::mr);
}

// An address handle is a peer's address, resolved once, which datagrams then name by its number.
Outcome<void> UverbsFile::create_ah(Call& call) {
  const auto request = call.read<abi::CreateAh>();
  Pd* const pd = find<Pd>(request.pd, ObjectKind::pd);
  if (pd == nullptr || request.attributes.port_num != kOnlyPort || !says_nothing_more(call.udata)) {
    return refuse(EINVAL);
  }
  auto ah = device_.create_ah(*pd, request.attributes, call.udata);
  if (!ah) {
    return refuse(ah.error());
  }
  (*ah)->use(*pd);
  (*ah)->user_handle = request.user_handle;
  call.answer(insert(std::move(*ah)));
  return {};
}

Outcome<void> UverbsFile::destroy_ah(Call& call) {
  return destroy(call.read<std::uint32_t>(), ObjectKind::ah);
}

Outcome<void> UverbsFile::create_comp_channel(Call& call) {
  auto channel = std::make_unique<Channel>();
  const int fd = channel->events.open();
  if (fd < 0) {
    return refuse(errno);
  }
  // The descriptor is its only name; there is no command to destroy a channel. One with the number
  // of a channel that the application has closed replaces it.
  free_channel(fd);
  channels_.emplace_back(fd, channel.get());
  (void)insert(std::move(channel));
  call.answer(static_cast<std::uint32_t>(fd));
  call.hook = &LibraryHooks::made_channel;
  call.touched.channel = fd;
  return {};
}

// A channel to which completion queues lead stays: they still send to it.
void UverbsFile::free_channel(int fd) {
  std::erase_if(channels_, [this, fd](const auto& entry) {
    if (entry.first != fd || entry.second->busy()) {
      return false;
    }
    std::erase_if(objects_, [&](auto& object) {
      if (object.get() == entry.second) {
        remove(object);
      }
      return false;
    });
    return true;
  });
}

void UverbsFile::closed_channel(int fd) {
  runner_.exclusively([this, fd] { free_channel(fd); });
}

// Both forms of the command; the extended one is brought into the shape of the other.
Outcome<UverbsFile::Made<Cq>> UverbsFile::make_cq(Call& call, const abi::CreateCq& request) {
  if (request.comp_vector >= device_.completion_vectors()) {
    return refuse(EINVAL);
  }
  Channel* channel = nullptr;
  if (request.comp_channel >= 0) {
    channel = find_channel(request.comp_channel);
    if (channel == nullptr) {
      return refuse(EBADF);
    }
  }
  auto cq = device_.create_cq({queues_, async_},
                              CqRequest{request.cqe, request.comp_vector, channel != nullptr},
                              call.udata);
  if (!cq) {
    return refuse(cq.error());
  }
  (*cq)->user_handle = request.user_handle;
  if (channel != nullptr) {
    (*cq)->channel = channel;
    (*cq)->use(*channel);
  }
  Cq& made = **cq;
  call.hook = &LibraryHooks::created_cq;
  call.touched.user_handle = request.user_handle;
  return Made<Cq>{insert(std::move(*cq)), made};
}

Outcome<void> UverbsFile::create_cq(Call& call) {
  const auto made = make_cq(call, call.read<abi::CreateCq>());
  if (!made) {
    return refuse(made.error());
  }
  call.answer(made->handle);
  call.answer(made->object.cqe);
  return {};
}

Outcome<void> UverbsFile::create_cq_extended(Call& call) {
  const auto request = call.read<abi::CreateCqExtended>();
  if (request.comp_mask != 0 || request.reserved != 0) {
    return refuse(EINVAL);
  }
  if (request.flags != 0) {  // clocks, overruns that are ignored
    return refuse(EOPNOTSUPP);
  }
  const auto made = make_cq(call, abi::CreateCq{.response = 0,
                                                .user_handle = request.user_handle,
                                                .cqe = request.cqe,
                                                .comp_vector = request.comp_vector,
                                                .comp_channel = request.comp_channel,
                                                .reserved = 0});
  if (!made) {
    return refuse(made.error());
  }
  call.answer(abi::CreateCqExtendedReply{made->handle, made->object.cqe, 0,
                                         sizeof(abi::CreateCqExtendedReply)});
  return {};
}

Outcome<void> UverbsFile::destroy_cq(Call& call) {
  const auto handle = call.read<std::uint32_t>(8);
  Cq* const cq = find<Cq>(handle, ObjectKind::cq);
  if (cq == nullptr) {
    return refuse(nothing_of_the_kind(handle));
  }
  if (cq->busy()) {
    return refuse(EBUSY);
  }
  // The library will wait until the application has acknowledged every event that it has read.
  if (cq->channel != nullptr) {
    cq->comp_events -= cq->channel->events.withdraw(cq->user_handle);
  }
  cq->async_events -= async_.withdraw(cq->user_handle);
  call.answer(cq->comp_events);
  call.answer(cq->async_events);
  return destroy(handle, ObjectKind::cq);
}

// Both forms of the command. The reply says what the queue pair got, which may be more than was
// asked for.
Outcome<abi::CreateQpReply> UverbsFile::make_qp(Call& call, const abi::CreateQp& request) {
  const bool shares = request.is_srq != 0;
  QpRequest wanted{.pd = find<Pd>(request.pd, ObjectKind::pd),
                   .send_cq = find<Cq>(request.send_cq, ObjectKind::cq),
                   .recv_cq = find<Cq>(request.recv_cq, ObjectKind::cq),
                   .srq = shares ? find<Srq>(request.srq, ObjectKind::srq) : nullptr,
                   .type = request.qp_type,
                   .signal_all = request.sq_sig_all != 0,
                   .max_send_wr = request.max_send_wr,
                   .max_recv_wr = request.max_recv_wr,
                   .max_send_sge = request.max_send_sge,
                   .max_recv_sge = request.max_recv_sge,
                   .max_inline_data = request.max_inline_data};
  if (!is_qp_type(request.qp_type) || (shares && wanted.srq == nullptr) || wanted.pd == nullptr ||
      wanted.send_cq == nullptr || wanted.recv_cq == nullptr) {
    return refuse(EINVAL);
  }
  auto qp = device_.create_qp({queues_, async_}, wanted, call.udata);
  if (!qp) {
    return refuse(qp.error());
  }
  (*qp)->use(*wanted.pd);
  (*qp)->use(*wanted.send_cq);
  (*qp)->use(*wanted.recv_cq);
  if (wanted.srq != nullptr) {
    (*qp)->use(*wanted.srq);
  }
  (*qp)->user_handle = request.user_handle;
  (*qp)->sq_sig_all = request.sq_sig_all != 0;
  abi::CreateQpReply reply{.handle = 0,
                           .qpn = (*qp)->number,
                           .max_send_wr = (*qp)->max_send_wr,
                           .max_recv_wr = (*qp)->max_recv_wr,
                           .max_send_sge = (*qp)->max_send_sge,
                           .max_recv_sge = (*qp)->max_recv_sge,
                           .max_inline_data = (*qp)->max_inline_data,
                           .reserved = 0};
  reply.handle = insert(std::move(*qp));
  return reply;
}

// Creates a queue pair by the older form of the command.
Outcome<void> UverbsFile::create_qp(Call& call) {
  const auto made = make_qp(call, call.read<abi::CreateQp>());
  if (!made) {
    return refuse(made.error());
  }
  call.answer(*made);
  return {};
}

// The newer form. What it could ask for beyond the older one, an indirection table or flags, no
// emulated device has.
Outcome<void> UverbsFile::create_qp_extended(Call& call) {
  constexpr std::uint32_t kHasTable = 1;  // the only bit that there is
  const auto request = call.read<abi::CreateQpExtended>();
  if ((request.comp_mask & ~kHasTable) != 0 || request.reserved != 0) {
    return refuse(EINVAL);
  }
  if (request.comp_mask != 0 || request.create_flags != 0 || request.source_qpn != 0) {
    return refuse(EOPNOTSUPP);
  }
  const auto made = make_qp(call, abi::CreateQp{.response = 0,
                                                .user_handle = request.user_handle,
                                                .pd = request.pd,
                                                .send_cq = request.send_cq,
                                                .recv_cq = request.recv_cq,
                                                .srq = request.srq,
                                                .max_send_wr = request.max_send_wr,
                                                .max_recv_wr = request.max_recv_wr,
                                                .max_send_sge = request.max_send_sge,
                                                .max_recv_sge = request.max_recv_sge,
                                                .max_inline_data = request.max_inline_data,
                                                .sq_sig_all = request.sq_sig_all,
                                                .qp_type = request.qp_type,
                                                .is_srq = request.is_srq,
                                                .reserved = 0});
  if (!made) {
    return refuse(made.error());
  }
  call.answer(abi::CreateQpExtendedReply{*made, 0, sizeof(abi::CreateQpExtendedReply)});
  return {};
}

// The hooks hear of each change, also of one that failed: the library maps its doorbell some time
// before the first.
Outcome<void> UverbsFile::change_qp(Call& call, const abi::ModifyQp& request) {
  Qp* const qp = find<Qp>(request.handle, ObjectKind::qp);
  if (qp == nullptr) {
    return refuse(EINVAL);
  }
  constexpr std::uint32_t kKnownAttributes = (1U << 21) - 1;
  if ((request.attr_mask & ~kKnownAttributes) != 0) {
    return refuse(EOPNOTSUPP);
  }
  const auto says = [&request](std::uint32_t bit) { return (request.attr_mask & bit) != 0; };
  if ((says(nic::kMaskPort) && request.port_num != kOnlyPort) ||
      (says(nic::kMaskAddress) && request.dest.port_num != kOnlyPort) ||
      (says(nic::kMaskAlternatePath) &&
       (request.alt_port_num != kOnlyPort || request.alt_dest.port_num != kOnlyPort)) ||
      (says(nic::kMaskCurrentState) && request.cur_qp_state >= nic::kQpStates) ||
      (says(nic::kMaskState) && request.qp_state >= nic::kQpStates) ||
      !says_nothing_more(call.udata)) {
    return refuse(EINVAL);
  }
  const auto outcome = device_.modify_qp(*qp, request);
  call.hook = &LibraryHooks::touched_qp;
  call.touched.user_handle = qp->user_handle;
  call.touched.send_doorbell = qp->send_doorbell;
  return outcome;
}

Outcome<void> UverbsFile::modify_qp(Call& call) {
  return change_qp(call, call.read<abi::ModifyQp>());
}

Outcome<void> UverbsFile::modify_qp_extended(Call& call) {
  const auto request = call.read<abi::ModifyQpExtended>();
  constexpr std::array<std::uint32_t, 2> kReply{0, 8};  // comp_mask, response_length
  call.answer(kReply);
  return change_qp(call, request.base);
}

// What the core knows is filled in here, the rest by the device.
Outcome<void> UverbsFile::query_qp(Call& call) {
  const Qp* const qp = find<Qp>(call.read<std::uint32_t>(8), ObjectKind::qp);
  if (qp == nullptr) {
    return refuse(EINVAL);
  }
  abi::QueryQp attributes{};
  attributes.max_send_wr = qp->max_send_wr;
  attributes.max_recv_wr = qp->max_recv_wr;
  attributes.max_send_sge = qp->max_send_sge;
  attributes.max_recv_sge = qp->max_recv_sge;
  attributes.max_inline_data = qp->max_inline_data;
  attributes.sq_sig_all = qp->sq_sig_all ? 1 : 0;
  const auto outcome = device_.query_qp(*qp, call.read<std::uint32_t>(12), attributes);
  call.answer(attributes);
  return outcome;
}

// Events that the application has not read are taken back, and the reply says how many it has got:
// the library waits until it has acknowledged those.
Outcome<void> UverbsFile::destroy_qp(Call& call) {
  const auto handle = call.read<std::uint32_t>(8);
  Qp* const qp = find<Qp>(handle, ObjectKind::qp);
  if (qp == nullptr) {
    return refuse(nothing_of_the_kind(handle));
  }
  if (qp->busy()) {
    return refuse(EBUSY);
  }
  qp->async_events -= async_.withdraw(qp->user_handle);
  call.answer(qp->async_events);
  call.hook = &LibraryHooks::destroyed_qp;
  call.touched.user_handle = qp->user_handle;
  call.touched.send_doorbell = qp->send_doorbell;
  return destroy(handle, ObjectKind::qp);
}

}  // namespace weft::kernel
