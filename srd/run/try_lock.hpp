// Owns the lock around an engine: pollers try it and leave, those who must get in yield until they
// do.
#pragma once

#include <atomic>
#include <cstdint>

#include "srd/run/short_turns.hpp"

namespace weft::srd {

// Not recursive: progress made from inside progress finds it taken and leaves. One word says who
// has it and whether somebody came in vain, so that no mark is lost between the look and the
// leaving.
class TryLock {
 public:
  [[nodiscard]] bool try_lock() {
    std::uintptr_t free = 0;
    return word_.load(std::memory_order_relaxed) == 0 &&
           word_.compare_exchange_strong(free, here(), std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  // Takes the lock, or leaves a mark for its holder. What the caller has written before is seen by
  // the holder after it has found the mark.
  [[nodiscard]] bool try_lock_or_mark() {
    std::uintptr_t seen = 0;
    while (!word_.compare_exchange_weak(seen, seen == 0 ? here() : seen | kMarked,
                                        std::memory_order_acq_rel, std::memory_order_relaxed)) {
    }
    return seen == 0;
  }
  void lock() {
    int spins = 0;
    while (!try_lock()) {
      if (++spins < kSpins) {
        __builtin_ia32_pause();
      } else {
        give_way();  // the holder may not have a core
      }
    }
  }
  // False: somebody has left a mark. It is taken away, and the lock is still held.
  [[nodiscard]] bool unlock_unless_marked() {
    std::uintptr_t held = here();
    if (word_.compare_exchange_strong(held, 0, std::memory_order_release,
                                      std::memory_order_relaxed)) {
      return true;
    }
    (void)word_.exchange(here(), std::memory_order_acq_rel);
    return false;
  }
  // Whatever marks there are.
  void unlock() { word_.store(0, std::memory_order_release); }

  // This thread has it: who asks is a signal handler, or something that progress has called, and
  // would wait for ever.
  [[nodiscard]] bool held_here() const {
    return (word_.load(std::memory_order_relaxed) & ~kMarked) == here();
  }

 private:
  static constexpr int kSpins = 100;
  static constexpr std::uintptr_t kMarked = 1;

  static std::uintptr_t here() {
    alignas(2) static thread_local char thread;
    return reinterpret_cast<std::uintptr_t>(&thread);
  }

  std::atomic<std::uintptr_t> word_{0};
};

}  // namespace weft::srd
