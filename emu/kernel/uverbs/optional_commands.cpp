// Owns the meaning of the commands that only some types of devices have: memory windows, shared
// receive queues, multicast, and the posts and arming requests that such a device hears of by a
// command, where EFA's library stores into mapped memory. Which devices have them says
// Device::has_optional_commands(); the others answer EOPNOTSUPP before any handler here runs.
#include <algorithm>
#include <cerrno>

#include "emu/kernel/uverbs/call.hpp"

namespace weft::kernel {

// A memory window is a second key for a part of a region, which a program can hand out and take
// back without registering again. Type 1 is bound by ibv_bind_mw(), type 2 by a work request.
Outcome<void> UverbsFile::alloc_mw(Call& call) {
  const auto request = call.read<abi::AllocMw>();
  constexpr std::uint8_t kTypes = 2;
  Pd* const pd = find<Pd>(request.pd, ObjectKind::pd);
  if (pd == nullptr || request.type == 0 || request.type > kTypes ||
      !says_nothing_more(call.udata)) {
    return refuse(EINVAL);
  }
  auto mw = device_.alloc_mw(*pd, request.type);
  if (!mw) {
    return refuse(mw.error());
  }
  (*mw)->use(*pd);
  const std::uint32_t rkey = (*mw)->rkey;
  call.answer(insert(std::move(*mw)));
  call.answer(rkey);
  return {};
}

Outcome<void> UverbsFile::dealloc_mw(Call& call) {
  return destroy(call.read<std::uint32_t>(), ObjectKind::mw);
}

// The reply says the size that the queue has afterwards, which may be more than was asked for.
Outcome<void> UverbsFile::resize_cq(Call& call) {
  const auto request = call.read<abi::ResizeCq>();
  Cq* const cq = find<Cq>(request.handle, ObjectKind::cq);
  if (cq == nullptr) {
    return refuse(EINVAL);
  }
  const auto done = device_.resize_cq(*cq, request.cqe, call.udata);
  call.answer(cq->cqe);
  return done;
}

// The program is about to sleep: once this has succeeded, run() has the background thread take over
// the polling (expects_events).
Outcome<void> UverbsFile::req_notify_cq(Call& call) {
  const auto request = call.read<abi::RequestNotify>();
  Cq* const cq = find<Cq>(request.handle, ObjectKind::cq);
  if (cq == nullptr) {
    return refuse(EINVAL);
  }
  call.expects_events = true;
  return device_.req_notify_cq(*cq, request.solicited_only != 0);
}

// The slow way; UverbsFile::try_post_send() has taken this command already where its form is the
// usual one.
Outcome<void> UverbsFile::post_send(Call& call) {
  Qp* const qp = find<Qp>(call.read<abi::PostSend>().handle, ObjectKind::qp);
  call.answer(std::uint32_t{0});  // none of the requests is bad
  return qp != nullptr ? device_.post_send(*qp) : refuse(EINVAL);
}

// Joining twice is no error. Groups are kept with the queue pair, which cannot be destroyed while
// it is in one.
Outcome<void> UverbsFile::attach_multicast(Call& call) {
  const auto request = call.read<abi::Multicast>();
  Qp* const qp = find<Qp>(request.qp, ObjectKind::qp);
  if (qp == nullptr) {
    return refuse(EINVAL);
  }
  auto& groups = qp->groups;
  if (std::find(groups.begin(), groups.end(), request.gid) != groups.end()) {
    return {};
  }
  const auto done = device_.attach_multicast(*qp, request.gid);
  if (done) {
    groups.push_back(request.gid);
  }
  return done;
}

Outcome<void> UverbsFile::detach_multicast(Call& call) {
  const auto request = call.read<abi::Multicast>();
  Qp* const qp = find<Qp>(request.qp, ObjectKind::qp);
  if (qp == nullptr || std::erase(qp->groups, request.gid) == 0) {
    return refuse(EINVAL);
  }
  return device_.detach_multicast(*qp, request.gid);
}

// A receive queue that several queue pairs take their receives from.
Outcome<void> UverbsFile::create_srq(Call& call) {
  const auto request = call.read<abi::CreateSrq>();
  Pd* const pd = find<Pd>(request.pd, ObjectKind::pd);
  if (pd == nullptr) {
    return refuse(EINVAL);
  }
  auto srq =
      device_.create_srq({queues_, async_}, *pd,
                         SrqRequest{request.max_wr, request.max_sge, request.limit}, call.udata);
  if (!srq) {
    return refuse(srq.error());
  }
  (*srq)->use(*pd);
  (*srq)->user_handle = request.user_handle;
  abi::CreateSrqReply reply{0, (*srq)->max_wr, (*srq)->max_sge, (*srq)->number};
  reply.handle = insert(std::move(*srq));
  call.answer(reply);
  return {};
}

Outcome<void> UverbsFile::modify_srq(Call& call) {
  const auto request = call.read<abi::ModifySrq>();
  Srq* const srq = find<Srq>(request.handle, ObjectKind::srq);
  if (srq == nullptr) {
    return refuse(EINVAL);
  }
  return device_.modify_srq(*srq, request, call.udata);
}

Outcome<void> UverbsFile::query_srq(Call& call) {
  const Srq* const srq = find<Srq>(call.read<std::uint32_t>(8), ObjectKind::srq);
  if (srq == nullptr) {
    return refuse(EINVAL);
  }
  abi::QuerySrqReply reply{};
  const auto done = device_.query_srq(*srq, reply);
  call.answer(reply);
  return done;
}

// As destroy_qp.
Outcome<void> UverbsFile::destroy_srq(Call& call) {
  const auto handle = call.read<std::uint32_t>(8);
  Srq* const srq = find<Srq>(handle, ObjectKind::srq);
  if (srq == nullptr) {
    return refuse(nothing_of_the_kind(handle));
  }
  if (srq->busy()) {
    return refuse(EBUSY);
  }
  srq->async_events -= async_.withdraw(srq->user_handle);
  call.answer(srq->async_events);
  return destroy(handle, ObjectKind::srq);
}

}  // namespace weft::kernel
