// Owns replacing the library's functions, and what the replacements do.
//
// A verbs library keeps function pointers in its objects: poll_cq, post_send and req_notify_cq in
// the context, start_poll in an extended completion queue, wr_complete in an extended queue pair.
// The kernel side learns of each object when it is made or changed (LibraryHooks), and gets its
// address as the user handle. From there the pointers are replaced, by functions that call the
// original and make progress for the device. The handle is the library's word: everything read from
// it is checked first.
#include "integration/preload/verbs_hooks.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <type_traits>
#include <utility>

#include "emu/kernel/user_memory.hpp"
#include "integration/preload/doorbell_trap.hpp"
#include "integration/preload/guard.hpp"
#include "integration/preload/loaded_code.hpp"
#include "srd/run/clock.hpp"
#include "srd/run/short_turns.hpp"

namespace weft::preload {
namespace {

using kernel::copy_from_user;
using kernel::Runner;

// After kEmptyPollsBeforeYield empty polls a thread yields its core. If no other thread wanted the
// core, it polls that often again before the next yield. If one did, that is often the very process
// it waits for: then it yields after every empty poll.
constexpr int kEmptyPollsBeforeYield = 16;
constexpr Duration kYieldToNobody = std::chrono::nanoseconds{1500};

void note_poll(bool empty) {
  static thread_local int max_empty_polls = kEmptyPollsBeforeYield;
  static thread_local int empty_polls = 0;
  if (!empty) {
    empty_polls = 0;
  } else if (++empty_polls >= max_empty_polls) {
    empty_polls = 0;
    const TimePoint before = srd::monotonic_now();
    srd::give_way();
    const bool shared = srd::monotonic_now() - before > kYieldToNobody;
    max_empty_polls = shared ? 1 : kEmptyPollsBeforeYield;
  }
}

// A library may have several versions of one function (libefa has four of start_poll), and a
// process several libraries. Each original gets a replacement of its own, a template instance per
// slot, which knows its original without searching a table.
template <class Wrapper, class Result, class... Args>
class Replacements {
 public:
  using Function = Result (*)(Args...);

  // The replacement for `original`; `original` itself when there are too many or it is one of ours
  // already.
  Function replace(Function original) {
    for (std::size_t i = 0; i < kSlots; ++i) {
      if (original == kTable[i]) {
        return original;
      }
    }
    for (std::size_t i = 0; i < kSlots; ++i) {
      Function expected = nullptr;
      if (originals_[i].compare_exchange_strong(expected, original) || expected == original) {
        return kTable[i];
      }
    }
    return original;
  }

 private:
  static constexpr std::size_t kSlots = 8;
  template <std::size_t Slot>
  static Result call(Args... args) {
    return Wrapper::run(originals_[Slot].load(std::memory_order_relaxed), args...);
  }
  template <std::size_t... Slots>
  static constexpr std::array<Function, kSlots> make_table(std::index_sequence<Slots...>) {
    return {&call<Slots>...};
  }
  static inline std::array<std::atomic<Function>, kSlots> originals_{};
  static constexpr std::array<Function, kSlots> kTable =
      make_table(std::make_index_sequence<kSlots>{});
};

Runner* runner_of(const ibv_context* context) { return VerbsHooks::instance().runner_of(context); }

// Whether to make progress before looking into the queue, once in kFullPollsBetween polls. A
// program that takes completions one by one finds the queue non-empty each time, and would never
// make progress otherwise.
bool progress_is_due() {
  constexpr int kFullPollsBetween = 16;
  static thread_local int full_polls = 0;
  full_polls = (full_polls + 1) % kFullPollsBetween;
  return full_polls == 0;
}

// An empty queue is worth a round of progress, and a second look if that moved a packet.
struct PollCq {
  static int run(int (*stock)(ibv_cq*, int, ibv_wc*), ibv_cq* cq, int most, ibv_wc* wc) {
    Runner* const runner = runner_of(cq->context);
    if (runner == nullptr) {
      return stock(cq, most, wc);
    }
    if (progress_is_due()) {
      runner->poll();
    }
    int count = stock(cq, most, wc);
    if (count == 0 && runner->poll()) {
      count = stock(cq, most, wc);
    }
    if (count > 0) {
      runner->took_completions(std::any_of(wc, wc + count, [](const ibv_wc& one) {
        return one.status == IBV_WC_SUCCESS && (one.opcode & IBV_WC_RECV) != 0;
      }));
    }
    note_poll(count == 0);
    return count;
  }
};

struct StartPoll {
  static int run(int (*stock)(ibv_cq_ex*, ibv_poll_cq_attr*), ibv_cq_ex* cq,
                 ibv_poll_cq_attr* attributes) {
    Runner* const runner = runner_of(cq->context);
    if (runner == nullptr) {
      return stock(cq, attributes);
    }
    if (progress_is_due()) {
      runner->poll();
    }
    int result = stock(cq, attributes);
    if (result == ENOENT && runner->poll()) {  // the library holds no lock then
      result = stock(cq, attributes);
    }
    if (result == 0) {
      runner->took_completions(cq->status == IBV_WC_SUCCESS &&
                               (ibv_wc_read_opcode(cq) & IBV_WC_RECV) != 0);
    }
    note_poll(result == ENOENT);
    return result;
  }
};

// Completions are found by polling, as with real devices; but a thread that only posts must still
// make receive progress, because peers wait for its answers.
void note_post(Runner& runner) {
  constexpr int kPostsBetween = 32;
  static thread_local int posts = 0;
  posts = (posts + 1) % kPostsBetween;
  if (posts == 0) {
    runner.poll();
  } else {
    runner.push();
  }
}

struct PostSend {
  static int run(int (*stock)(ibv_qp*, ibv_send_wr*, ibv_send_wr**), ibv_qp* qp, ibv_send_wr* wr,
                 ibv_send_wr** bad) {
    const int result = stock(qp, wr, bad);
    if (Runner* const runner = runner_of(qp->context)) {
      note_post(*runner);
    }
    return result;
  }
};

struct Complete {
  static int run(int (*stock)(ibv_qp_ex*), ibv_qp_ex* qp) {
    const int result = stock(qp);
    if (Runner* const runner = runner_of(qp->qp_base.context)) {
      note_post(*runner);
    }
    return result;
  }
};

// Looks once more after arming: a completion that came before is found by the program's next poll,
// and one that comes later by the thread that expect_events() sets to work.
struct RequestNotify {
  static int run(int (*stock)(ibv_cq*, int), ibv_cq* cq, int solicited) {
    const int result = stock(cq, solicited);
    if (Runner* const runner = runner_of(cq->context)) {
      runner->poll();
      runner->expect_events();
    }
    return result;
  }
};

Replacements<PollCq, int, ibv_cq*, int, ibv_wc*> poll_cq;
Replacements<StartPoll, int, ibv_cq_ex*, ibv_poll_cq_attr*> start_poll;
Replacements<PostSend, int, ibv_qp*, ibv_send_wr*, ibv_send_wr**> post_send;
Replacements<Complete, int, ibv_qp_ex*> wr_complete;
Replacements<RequestNotify, int, ibv_cq*, int> req_notify_cq;

// Whether an object of that type may lie there: aligned, and readable to its end.
template <class T>
bool readable(const T* object) {
  alignas(T) std::array<std::byte, sizeof(T)> copy;
  return object != nullptr && reinterpret_cast<std::uintptr_t>(object) % alignof(T) == 0 &&
         copy_from_user(copy, reinterpret_cast<std::uintptr_t>(object));
}

template <class Function>
bool is_code(Function function) {
  return function != nullptr && is_loaded_code(reinterpret_cast<const void*>(function));
}

// A program that uses the raw interface may put any number where libraries put their object's
// address: so the object must look like a library's, with this descriptor and with pointers to
// code.
bool is_library_context(const ibv_context* context, int fd) {
  return readable(context) && context->cmd_fd == fd && is_code(context->ops.poll_cq) &&
         is_code(context->ops.post_send) && is_code(context->ops.req_notify_cq);
}

// Replaces a pointer atomically. Other threads may already use the object: both values work for
// them, as the replacement calls the original.
template <class Function, class Table>
void put(Function*& slot, Table& table) {
  std::atomic_ref(slot).store(table.replace(slot), std::memory_order_release);
}

// Calls libibverbs, which may have been loaded privately (RTLD_LOCAL). If several are loaded, each
// gives the same answer: it looks into the object.
ibv_qp_ex* to_qp_ex(ibv_qp* qp) {
  void* const function = find_loaded_function("ibv_qp_to_qp_ex");
  return function == nullptr ? nullptr : reinterpret_cast<ibv_qp_ex* (*)(ibv_qp*)>(function)(qp);
}

// `object` if it is readable and its member points to code; else null.
template <class T, class Function>
T* with_code(T* object, Function* T::*member) {
  return readable(object) && is_code(object->*member) ? object : nullptr;
}

}  // namespace

VerbsHooks& VerbsHooks::instance() {
  static constinit VerbsHooks hooks;
  static_assert(std::is_trivially_destructible_v<VerbsHooks>);
  return hooks;
}

void VerbsHooks::opened(int fd, Runner& runner) {
  const Guard guard(lock_);
  if (!guard) {
    return;
  }
  for (OpenFd& entry : open_) {
    if (entry.fd < 0) {
      entry = {fd, &runner};
      return;
    }
  }
}

void VerbsHooks::closing(int fd) {
  const Guard guard(lock_);
  if (!guard) {
    return;
  }
  if (DoorbellTrap::wanted()) {
    DoorbellTrap::instance().forget(fd);
  }
  for (OpenFd& entry : open_) {
    if (entry.fd == fd) {
      entry = {};
    }
  }
  for (Context& entry : contexts_) {
    if (entry.fd == fd) {
      entry.runner.store(nullptr, std::memory_order_relaxed);
      entry.fd = -1;  // the entry can serve the next context, the search goes on past it
    }
  }
}

void VerbsHooks::forget_all() {
  for (Context& entry : contexts_) {
    entry.runner.store(nullptr, std::memory_order_relaxed);
    entry.fd = -1;
  }
  open_.fill({});
  if (DoorbellTrap::wanted()) {
    DoorbellTrap::instance().forget(-1);
  }
}

Runner* VerbsHooks::runner_of_fd(int fd) const {
  for (const OpenFd& entry : open_) {
    if (entry.fd == fd) {
      return entry.runner;
    }
  }
  return nullptr;
}

// Enters the context of that file, so that runner_of() finds it. False: the table is full.
bool VerbsHooks::know(ibv_context* context, int fd, Runner& runner) {
  Context* free = nullptr;
  for (Context& entry : contexts_) {
    if (entry.fd == fd && entry.context.load(std::memory_order_relaxed) == context) {
      return true;
    }
    if (free == nullptr && entry.fd < 0) {
      free = &entry;
    }
  }
  if (free == nullptr) {
    return false;
  }
  free->fd = fd;
  free->runner.store(&runner, std::memory_order_relaxed);
  free->context.store(context, std::memory_order_release);
  return true;
}

void VerbsHooks::hook_context(ibv_context* context, bool rings_by_command) {
  put(context->ops.poll_cq, poll_cq);
  if (rings_by_command) {
    return;
  }
  put(context->ops.post_send, post_send);
  put(context->ops.req_notify_cq, req_notify_cq);
}

void VerbsHooks::created_cq(const Touched& touched) {
  const int fd = touched.fd;
  auto* const cq = reinterpret_cast<ibv_cq*>(static_cast<std::uintptr_t>(touched.user_handle));
  // The library has not filled the CQ yet, except for its context. This takes a lock of the
  // loader's, so without ours.
  const bool known = readable(cq) && is_library_context(cq->context, fd);
  const Guard guard(lock_);
  if (!guard) {
    return;
  }
  Runner* const runner = runner_of_fd(fd);
  if (runner == nullptr || !known || !know(cq->context, fd, *runner)) {
    return;
  }
  hook_context(cq->context, touched.rings_by_command);
}

void VerbsHooks::touched_qp(const Touched& touched) {
  const int fd = touched.fd;
  auto* const qp = reinterpret_cast<ibv_qp*>(static_cast<std::uintptr_t>(touched.user_handle));
  // All that takes a lock of the loader's, before ours is taken.
  const bool known = readable(qp) && is_library_context(qp->context, fd);
  ibv_qp_ex* const extended = known ? with_code(to_qp_ex(qp), &ibv_qp_ex::wr_complete) : nullptr;
  std::array<ibv_cq_ex*, 2> queues{};
  if (known) {
    const std::array<ibv_cq*, 2> of_qp{qp->send_cq, qp->recv_cq};
    for (std::size_t i = 0; i < queues.size(); ++i) {
      if (readable(of_qp[i]) && of_qp[i]->context == qp->context) {
        queues[i] = with_code(reinterpret_cast<ibv_cq_ex*>(of_qp[i]), &ibv_cq_ex::start_poll);
      }
    }
  }
  const Guard guard(lock_);
  if (!guard) {
    return;
  }
  Runner* const runner = runner_of_fd(fd);
  if (runner != nullptr && DoorbellTrap::wanted()) {
    DoorbellTrap::instance().watch(fd, touched.send_doorbell, *runner);
  }
  if (runner == nullptr || !known || !know(qp->context, fd, *runner)) {
    return;
  }
  for (ibv_cq_ex* const queue : queues) {
    if (queue != nullptr) {
      put(queue->start_poll, start_poll);
    }
  }
  if (extended != nullptr && !touched.rings_by_command) {
    put(extended->wr_complete, wr_complete);
  }
}

void VerbsHooks::destroyed_qp(const Touched& touched) {
  const Guard guard(lock_);
  if (guard && DoorbellTrap::wanted()) {
    DoorbellTrap::instance().forget(touched.fd, touched.send_doorbell.key);
  }
}

}  // namespace weft::preload
