// Owns the lock around an engine: pollers try it and leave, those who must get in yield until they
// do.
#pragma once

#include <atomic>

#include "srd/run/short_turns.hpp"

namespace weft::srd {

// Not recursive: progress made from inside progress finds it taken and leaves.
class TryLock {
 public:
  [[nodiscard]] bool try_lock() {
    return !taken_.load(std::memory_order_relaxed) &&
           !taken_.exchange(true, std::memory_order_acquire);
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
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  static constexpr int kSpins = 100;
  std::atomic<bool> taken_{false};
};

}  // namespace weft::srd
