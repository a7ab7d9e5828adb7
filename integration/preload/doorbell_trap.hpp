// Owns noticing stores to doorbells by programs that ring them without the verbs library: on
// request, as each then costs a signal.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "emu/kernel/device.hpp"

namespace weft::preload {

// The application's page is made read-only. A store to it becomes a signal, whose handler makes the
// store where it belongs, skips the instruction, and lets the device send.
class DoorbellTrap {
 public:
  // WEFT_DOORBELL_TRAP=1, on a processor whose stores can be read.
  [[nodiscard]] static bool wanted();
  static DoorbellTrap& instance();

  // Looks for the application's mapping of the doorbell, which belongs to the device file `fd`. The
  // library maps it some time between the creation and the first use of its queue pair.
  void watch(int fd, const emu::kernel::QueueRegion& doorbell, emu::kernel::Runner& runner);
  // The device file is being closed; -1: all of them, in the child of a fork.
  void forget(int fd);

 private:
  static constexpr std::size_t kMost = 1024;
  struct Entry {
    std::atomic<std::uintptr_t> page{0};  // of the application's; 0: free
    std::byte* own = nullptr;             // the same memory, writable as long as the entry lives
    int fd = -1;
    std::uint64_t key = 0;
    emu::kernel::Runner* runner = nullptr;
  };

  static void on_fault(int signal, void* info, void* context);
  [[nodiscard]] Entry* find(std::uintptr_t page);
  [[nodiscard]] bool is_own(std::uintptr_t page) const;
  bool install();

  std::mutex mutex_;
  bool installed_ = false;
  std::array<Entry, kMost> entries_;
};

}  // namespace weft::preload
