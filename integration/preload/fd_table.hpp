// Owns which descriptors of the process are emulated device files.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace weft::preload {

// Looked at by every wrapped call on a descriptor: one load of a byte.
class FdTable {
 public:
  static constexpr int kMost = 1 << 16;

  // The number of the NIC plus one; 0: none of ours.
  [[nodiscard]] static std::uint8_t kind(int fd) {
    return fd >= 0 && fd < kMost
               ? kinds_[static_cast<std::size_t>(fd)].load(std::memory_order_relaxed)
               : std::uint8_t{0};
  }
  static void set(int fd, std::uint8_t kind) {
    kinds_[static_cast<std::size_t>(fd)].store(kind, std::memory_order_relaxed);
  }

 private:
  static inline std::array<std::atomic<std::uint8_t>, kMost> kinds_{};
};

}  // namespace weft::preload
