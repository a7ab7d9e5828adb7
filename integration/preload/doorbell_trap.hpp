// Owns noticing stores to doorbells by programs that ring them without the verbs library. Only on
// request, since each such store then costs a signal.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "emu/kernel/device.hpp"

namespace weft::preload {

// The application's page is made read-only. A store to it becomes a signal, whose handler makes the
// store where it belongs, skips the instruction, and lets the device send. The caller has the lock
// of the hooks.
class DoorbellTrap {
 public:
  // WEFT_DOORBELL_TRAP=1, on a processor whose instructions decode() knows.
  [[nodiscard]] static bool wanted();
  static DoorbellTrap& instance();

  // Looks for the application's mapping of the doorbell, which belongs to the device file `fd`. The
  // library maps it some time between the creation and the first use of its queue pair.
  void watch(int fd, const kernel::QueueRegion& doorbell, kernel::Runner& runner);
  // The queue pair with that doorbell is gone.
  void forget(int fd, std::uint64_t key);
  // The device file is being closed; -1: all of them, in the child of a fork.
  void forget(int fd);

  [[nodiscard]] bool in_use() const { return in_use_.load(std::memory_order_acquire); }
  // In the handler of SIGSEGV. True: the fault was a store to a doorbell, which has been made.
  [[nodiscard]] bool take(const siginfo_t& info, ucontext_t& context);

 private:
  static constexpr std::size_t kMax = 1024;
  // One doorbell. Filled and released under the lock of the hooks; `page` is set last and cleared
  // first, and is all that a handler looks for.
  struct Entry {
    std::atomic<std::uintptr_t> page{0};  // of the application's; 0: free
    std::byte* own = nullptr;             // the same memory, writable as long as the entry lives
    int fd = -1;
    std::uint64_t key = 0;
    unsigned long inode = 0;
    kernel::Runner* runner = nullptr;
  };

  [[nodiscard]] Entry* find(std::uintptr_t page);
  [[nodiscard]] bool is_own(std::uintptr_t page) const;
  void release(Entry& entry);

  std::atomic<bool> in_use_{false};
  std::atomic<int> handling_{0};  // threads in the handler
  std::array<Entry, kMax> entries_;
};

}  // namespace weft::preload
