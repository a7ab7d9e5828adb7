// Owns the program's actions for SIGSEGV and SIGBUS, and doing what the kernel would do with them.
//
// The kernel knows one action per signal: ours (on_fault). The program's own is kept in Behind. A
// fault goes, in this order, to a guarded copy of ours that it interrupted; to the doorbell trap;
// to the program's action, called or imitated by pass_on(). sigaction() and its relatives are
// wrapped, and read and write Behind instead of the kernel's action.
#include "integration/preload/fault_signals.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "integration/preload/doorbell_trap.hpp"
#include "integration/preload/fault_guard.hpp"
#include "integration/preload/next.hpp"
#include "integration/preload/own_memory.hpp"

namespace weft::preload {
namespace {

using Action = struct sigaction;

int stock_sigaction(int signal, const Action* wanted, Action* before) {
  WEFT_NEXT(int(int, const Action*, Action*), stock, "sigaction");
  return stock(signal, wanted, before);
}

// An action may be changed from a signal handler that interrupted a change in the same thread. So
// all signals are blocked during a change, and a change neither allocates nor waits for a lock.
class SignalsBlocked {
 public:
  SignalsBlocked() { change(SIG_SETMASK, ~std::uint64_t{0}, &before_); }
  ~SignalsBlocked() { change(SIG_SETMASK, before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  // The kernel's own mask: libc's functions keep its internal signals out.
  static void change(int how, std::uint64_t mask, std::uint64_t* before) {
    (void)syscall(SYS_rt_sigprocmask, how, &mask, before, sizeof mask);
  }

 private:
  std::uint64_t before_ = 0;
};

constexpr std::uint64_t bit(int signal) { return std::uint64_t{1} << (signal - 1); }

std::uint64_t kernel_mask(const sigset_t& set) {
  std::uint64_t mask = 0;
  std::memcpy(&mask, &set, sizeof mask);
  return mask;
}

// The program's action for one signal. A seqlock: written with all signals blocked, read by
// handlers in any thread; `changes_` is odd during a change.
class Behind {
 public:
  [[nodiscard]] Action load() const {
    for (;;) {
      const std::uint32_t before = changes_.load(std::memory_order_acquire);
      std::array<std::uint64_t, kWords> copy;
      for (std::size_t i = 0; i < kWords; ++i) {
        copy[i] = words_[i].load(std::memory_order_relaxed);
      }
      std::atomic_thread_fence(std::memory_order_acquire);
      if (before % 2 == 0 && changes_.load(std::memory_order_relaxed) == before) {
        Action action;
        std::memcpy(&action, copy.data(), sizeof action);
        return action;
      }
    }
  }
  // Replaces the action by change(action).
  template <class Change>
  void change(Change&& change) {
    const SignalsBlocked here;
    std::uint32_t before = changes_.load(std::memory_order_relaxed) & ~1U;
    while (!changes_.compare_exchange_weak(before, before + 1, std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
      before &= ~1U;
    }
    std::atomic_thread_fence(std::memory_order_release);
    std::array<std::uint64_t, kWords> copy;
    for (std::size_t i = 0; i < kWords; ++i) {
      copy[i] = words_[i].load(std::memory_order_relaxed);
    }
    Action action;
    std::memcpy(&action, copy.data(), sizeof action);
    change(action);
    std::memcpy(copy.data(), &action, sizeof action);
    for (std::size_t i = 0; i < kWords; ++i) {
      words_[i].store(copy[i], std::memory_order_relaxed);
    }
    changes_.store(before + 2, std::memory_order_release);
  }

 private:
  static_assert(sizeof(Action) % sizeof(std::uint64_t) == 0);
  static constexpr std::size_t kWords = sizeof(Action) / sizeof(std::uint64_t);
  std::atomic<std::uint32_t> changes_{0};
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

constinit std::atomic<bool> installed{false};
constinit Behind behind_segv;
constinit Behind behind_bus;

// A fault whose signal is blocked ends the process, whether the fault was the program's or ours. So
// once the signals are taken over, no mask that the program sets may block them: neither the mask
// of a thread nor that of a handler.
constexpr std::uint64_t kFaults = bit(SIGSEGV) | bit(SIGBUS);

bool blocks_faults(const sigset_t& set) { return (kernel_mask(set) & kFaults) != 0; }

void let_faults_in(sigset_t& set) {
  sigdelset(&set, SIGSEGV);
  sigdelset(&set, SIGBUS);
}

// Null: the signal is not one of the two.
Behind* behind_of(int signal) {
  return signal == SIGSEGV ? &behind_segv : signal == SIGBUS ? &behind_bus : nullptr;
}

bool has_handler(const Action& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

void on_fault(int signal, siginfo_t* info, void* context);

// Installs our handler with the stack and the mask that the program's handler expects. SA_NODEFER,
// because a guarded copy may fault while another fault is handled.
int take_signal(int signal, const Action& program) {
  Action own{};
  own.sa_sigaction = on_fault;
  own.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&own.sa_mask);
  if (has_handler(program)) {
    own.sa_flags |= program.sa_flags & (SA_ONSTACK | SA_RESTART);
    own.sa_mask = program.sa_mask;
    let_faults_in(own.sa_mask);
  }
  return stock_sigaction(signal, &own, nullptr);
}

// --- What the kernel would do

// The signal was sent by a process, and its default action ends this one: queue it again, with the
// same information, under the default action.
void die_of_sent(int signal, const siginfo_t& info) {
  Action by_default{};
  by_default.sa_handler = SIG_DFL;
  stock_sigaction(signal, &by_default, nullptr);
  (void)syscall(SYS_rt_tgsigqueueinfo, getpid(), static_cast<pid_t>(syscall(SYS_gettid)), signal,
                &info);
}

// A fault with the default action. Returning repeats the instruction, which may succeed by now: its
// page may have been a doorbell until a moment ago. If the same instruction faults once more, the
// default action is installed, and the next attempt ends the process at the right place.
void die_of_fault(int signal, const siginfo_t& info, const ucontext_t& context) {
  struct Place {
    greg_t instruction = 0;
    greg_t stack = 0;
    const void* address = nullptr;
    bool operator==(const Place&) const = default;
  };
  static constinit thread_local Place latest;
  const Place here{context.uc_mcontext.gregs[REG_RIP], context.uc_mcontext.gregs[REG_RSP],
                   info.si_addr};
  if (here == latest) {
    Action by_default{};
    by_default.sa_handler = SIG_DFL;
    stock_sigaction(signal, &by_default, nullptr);
  }
  latest = here;
}

// From now on the signal has its default action.
void reset(int signal) {
  if (!is_own_memory()) {
    Action by_default{};
    by_default.sa_handler = SIG_DFL;
    stock_sigaction(signal, &by_default, nullptr);
    return;
  }
  behind_of(signal)->change([](Action& now) {
    now.sa_flags &= ~SA_SIGINFO;
    now.sa_handler = SIG_DFL;
  });
}

// Does with a signal what the kernel would do if the program's action were installed.
void pass_on(int signal, siginfo_t* info, void* context) {
  const Action action = behind_of(signal)->load();
  const bool sent = info->si_code <= 0;
  if (!has_handler(action)) {
    if (sent && action.sa_handler == SIG_DFL) {
      die_of_sent(signal, *info);
    } else if (!sent) {  // a fault cannot be ignored
      die_of_fault(signal, *info, *static_cast<const ucontext_t*>(context));
    }
    return;
  }
  if ((action.sa_flags & SA_RESETHAND) != 0) {
    reset(signal);
  }
  // Our return restores the former mask; a handler that leaves by longjmp() may not.
  const std::uint64_t itself = (action.sa_flags & SA_NODEFER) != 0 ? 0 : bit(signal);
  SignalsBlocked::change(SIG_BLOCK, (kernel_mask(action.sa_mask) & kFaults) | itself, nullptr);
  signal_mask_changed();
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal, info, context);
  } else {
    action.sa_handler(signal);
  }
}

// Only a signal that the kernel raised can be a fault of ours; one that a process sent goes
// straight to the program.
void on_fault(int signal, siginfo_t* info, void* context_pointer) {
  auto& context = *static_cast<ucontext_t*>(context_pointer);
  const bool by_kernel = info->si_code > 0;
  if (by_kernel && leave_guarded_touch(*info, context)) {
    return;
  }
  if (by_kernel && signal == SIGSEGV && DoorbellTrap::instance().take(*info, context)) {
    // push_unpolled() may have unblocked the two signals, which our return must not undo.
    let_faults_in(context.uc_sigmask);
    return;
  }
  pass_on(signal, info, context_pointer);
}

// A sigaction(2) in a child of vfork(), which has no use for our handler: it must not touch a
// device.
int act_in_vfork_child(int signal, const Action* wanted, Action* before) {
  Action known{};
  const int result = stock_sigaction(signal, wanted, &known);
  if (result == 0 && before != nullptr) {
    const bool is_ours = (known.sa_flags & SA_SIGINFO) != 0 && known.sa_sigaction == on_fault;
    *before = is_ours ? behind_of(signal)->load() : known;
  }
  return result;
}

bool is_taken_over(int signal) {
  return behind_of(signal) != nullptr && installed.load(std::memory_order_acquire);
}

// Answers a sigaction(2) of the program. False: the signal is not taken over; call the stock
// function.
bool answer(int signal, const Action* wanted, Action* before, int& result) {
  if (!is_taken_over(signal)) {
    return false;
  }
  if (!is_own_memory()) {
    result = act_in_vfork_child(signal, wanted, before);
    return true;
  }
  Behind* const behind = behind_of(signal);
  if (wanted == nullptr) {
    if (before != nullptr) {
      *before = behind->load();
    }
    result = 0;
    return true;
  }
  const Action next = *wanted;  // which may be where `before` is
  Action previous{};
  behind->change([&](Action& now) {
    previous = now;
    result = take_signal(signal, next);
    now = result == 0 ? next : now;
  });
  if (before != nullptr && result == 0) {
    *before = previous;
  }
  return true;
}

// As signal() with these flags.
template <class Stock>
sighandler_t set_handler(Stock& stock, int signal, sighandler_t handler, int flags) {
  Action wanted{};
  Action before{};
  wanted.sa_handler = handler;
  wanted.sa_flags = flags;
  if ((flags & SA_NODEFER) == 0) {
    sigaddset(&wanted.sa_mask, signal);
  }
  int result = 0;
  if (!answer(signal, &wanted, &before, result)) {
    return stock(signal, handler);
  }
  return result == 0 ? before.sa_handler : SIG_ERR;
}

}  // namespace

// Handlers that the program installed earlier keep their masks, but for the two signals.
void install_fault_signals() {
  if (installed.load(std::memory_order_acquire)) {
    return;
  }
  for (const int signal : {SIGSEGV, SIGBUS}) {
    behind_of(signal)->change([signal](Action& now) {
      if (stock_sigaction(signal, nullptr, &now) == 0) {
        (void)take_signal(signal, now);
      }
    });
  }
  installed.store(true, std::memory_order_release);
  for (int signal = 1; signal < NSIG; ++signal) {
    Action action{};
    if (behind_of(signal) == nullptr && stock_sigaction(signal, nullptr, &action) == 0 &&
        has_handler(action) && blocks_faults(action.sa_mask)) {
      let_faults_in(action.sa_mask);
      (void)stock_sigaction(signal, &action, nullptr);
    }
  }
}

}  // namespace weft::preload

using weft::preload::set_handler;

namespace {
int sigaction_any(int signal, const struct sigaction* wanted, struct sigaction* before) {
  int result = 0;
  if (weft::preload::answer(signal, wanted, before, result)) {
    return result;
  }
  if (wanted == nullptr || !weft::preload::installed.load(std::memory_order_acquire)) {
    return weft::preload::stock_sigaction(signal, wanted, before);
  }
  struct sigaction others = *wanted;
  weft::preload::let_faults_in(others.sa_mask);
  return weft::preload::stock_sigaction(signal, &others, before);
}
constexpr int kOnce = SA_RESETHAND | SA_NODEFER;
}  // namespace

WEFT_EXPORT int sigaction(int signal, const struct sigaction* wanted,
                          struct sigaction* before) noexcept {
  return sigaction_any(signal, wanted, before);
}
WEFT_EXPORT int __sigaction(int signal, const struct sigaction* wanted,
                            struct sigaction* before) noexcept {
  return sigaction_any(signal, wanted, before);
}
WEFT_EXPORT sighandler_t signal(int signal, sighandler_t handler) noexcept {
  WEFT_NEXT(sighandler_t(int, sighandler_t), stock, "signal");
  return set_handler(stock, signal, handler, SA_RESTART);
}
WEFT_EXPORT sighandler_t bsd_signal(int signal, sighandler_t handler) noexcept {
  WEFT_NEXT(sighandler_t(int, sighandler_t), stock, "bsd_signal");
  return set_handler(stock, signal, handler, SA_RESTART);
}
WEFT_EXPORT sighandler_t ssignal(int signal, sighandler_t handler) noexcept {
  WEFT_NEXT(sighandler_t(int, sighandler_t), stock, "ssignal");
  return set_handler(stock, signal, handler, SA_RESTART);
}
WEFT_EXPORT sighandler_t sysv_signal(int signal, sighandler_t handler) noexcept {
  WEFT_NEXT(sighandler_t(int, sighandler_t), stock, "sysv_signal");
  return set_handler(stock, signal, handler, kOnce);
}
WEFT_EXPORT sighandler_t __sysv_signal(int signal, sighandler_t handler) noexcept {
  WEFT_NEXT(sighandler_t(int, sighandler_t), stock, "__sysv_signal");
  return set_handler(stock, signal, handler, kOnce);
}

// The older family. libc's versions call its own sigaction() and sigprocmask(), not these wrappers.
WEFT_EXPORT sighandler_t sigset(int signal, sighandler_t handler) noexcept {
  WEFT_NEXT(sighandler_t(int, sighandler_t), stock, "sigset");
  if (handler == SIG_HOLD && weft::preload::is_taken_over(signal)) {
    struct sigaction now {};
    (void)sigaction_any(signal, nullptr, &now);
    return now.sa_handler;
  }
  return set_handler(stock, signal, handler, 0);
}
WEFT_EXPORT int sigignore(int signal) noexcept {
  WEFT_NEXT(int(int), stock, "sigignore");
  if (!weft::preload::is_taken_over(signal)) {
    return stock(signal);
  }
  struct sigaction wanted {};
  wanted.sa_handler = SIG_IGN;
  return sigaction_any(signal, &wanted, nullptr);
}
WEFT_EXPORT int sighold(int signal) noexcept {
  WEFT_NEXT(int(int), stock, "sighold");
  return weft::preload::is_taken_over(signal) ? 0 : stock(signal);
}

namespace {
template <class Stock>
// The program's mask without the two signals; asking for the mask and unblocking are left as they
// are.
int change_mask(Stock& stock, int how, const sigset_t* wanted, sigset_t* before) {
  if (wanted == nullptr || how == SIG_UNBLOCK ||
      !weft::preload::installed.load(std::memory_order_acquire)) {
    return stock(how, wanted, before);
  }
  sigset_t others = *wanted;
  weft::preload::let_faults_in(others);
  return stock(how, &others, before);
}
}  // namespace

WEFT_EXPORT int pthread_sigmask(int how, const sigset_t* wanted, sigset_t* before) noexcept {
  WEFT_NEXT(int(int, const sigset_t*, sigset_t*), stock, "pthread_sigmask");
  return change_mask(stock, how, wanted, before);
}
WEFT_EXPORT int sigprocmask(int how, const sigset_t* wanted, sigset_t* before) noexcept {
  WEFT_NEXT(int(int, const sigset_t*, sigset_t*), stock, "sigprocmask");
  return change_mask(stock, how, wanted, before);
}
