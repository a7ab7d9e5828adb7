// Owns the lock around an engine: pollers try it and leave, threads that must get in yield until
// they do.
#pragma once

#include <atomic>
#include <cstdint>

#include "srd/run/short_turns.hpp"

namespace weft::srd {

// What the lock needs from the system. The model checker of the tests brings its own.
struct SystemThreads {
  template <class T>
  using Atomic = std::atomic<T>;

  // Names the calling thread. Even.
  [[nodiscard]] static std::uintptr_t here() {
    // initial-exec: the address of the variable is found without a call. Allowed because the
    // library is loaded at program start.
    [[gnu::tls_model("initial-exec")]] alignas(2) static thread_local char thread;
    return reinterpret_cast<std::uintptr_t>(&thread);
  }
  // One step of waiting until `word` may be free.
  static void wait_for(const Atomic<std::uintptr_t>& /*word*/, int tries) {
    constexpr int kSpins = 100;
    if (tries < kSpins) {
      __builtin_ia32_pause();
    } else {
      give_way();  // the holder may not have a core
    }
  }
};

// Not recursive: progress made from inside progress finds it taken and leaves. One word says which
// thread has the lock and whether another one has found it taken, so the holder checks for a mark
// and releases in one atomic step, and no mark is lost in between.
template <class Threads>
class BasicTryLock {
 public:
  [[nodiscard]] bool try_lock() {
    std::uintptr_t free = 0;
    return word_.load(std::memory_order_relaxed) == 0 &&
           word_.compare_exchange_strong(free, Threads::here(), std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  // Takes the lock, or leaves a mark for its holder. A holder that finds the mark also sees what
  // the caller wrote before (release here, acquire in unlock_unless_marked()).
  [[nodiscard]] bool try_lock_or_mark() {
    std::uintptr_t seen = 0;
    while (!word_.compare_exchange_weak(seen, seen == 0 ? Threads::here() : seen | kMarked,
                                        std::memory_order_acq_rel, std::memory_order_relaxed)) {
    }
    return seen == 0;
  }
  void lock() {
    for (int tries = 0; !try_lock(); ++tries) {
      Threads::wait_for(word_, tries);
    }
  }
  // False: another thread has left a mark. The mark is cleared and the lock is still held: the
  // caller owes a round for that thread.
  [[nodiscard]] bool unlock_unless_marked() {
    std::uintptr_t held = Threads::here();
    if (word_.compare_exchange_strong(held, 0, std::memory_order_release,
                                      std::memory_order_relaxed)) {
      return true;
    }
    (void)word_.exchange(Threads::here(), std::memory_order_acq_rel);
    return false;
  }
  // Releases and drops any mark.
  void unlock() { word_.store(0, std::memory_order_release); }

  // This thread has the lock: the caller is a signal handler, or was called from inside a round,
  // and would wait for ever.
  [[nodiscard]] bool held_here() const {
    return (word_.load(std::memory_order_relaxed) & ~kMarked) == Threads::here();
  }

 private:
  static constexpr std::uintptr_t kMarked = 1;

  typename Threads::template Atomic<std::uintptr_t> word_{0};
};

using TryLock = BasicTryLock<SystemThreads>;

}  // namespace weft::srd
