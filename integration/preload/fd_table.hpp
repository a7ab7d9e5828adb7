// Owns which descriptors of the process belong to the emulation.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace weft::preload {

// Every wrapped call on a descriptor asks it first, so it costs one load of a byte. No lock: a
// number that is closed past our wrappers may be out of date, which is_still_device() and
// is_still_rdma_socket() find out. Numbers from kMax on are never ours.
class FdTable {
 public:
  static constexpr int kMax = 1 << 16;

  // A device file: its number plus one. Those of NICs have the NIC's number.
  static constexpr std::uint8_t kMaxNics = 64;
  static constexpr std::uint8_t kConnections = kMaxNics;  // the number of /dev/infiniband/rdma_cm
  static constexpr std::uint8_t kDatagrams = kConnections + 1;  // and from here on of umadN
  static constexpr std::uint8_t kNetlink = 253;  // a socket by which the program asks about devices
  static constexpr std::uint8_t kChannel = 254;  // the application's end of a completion channel
  static constexpr std::uint8_t kPrivate = 255;  // ours: the application does not know of it

  // 0: a descriptor of the program's own.
  [[nodiscard]] static std::uint8_t kind(int fd) {
    return fd >= 0 && fd < kMax
               ? kinds_[static_cast<std::size_t>(fd)].load(std::memory_order_relaxed)
               : std::uint8_t{0};
  }
  [[nodiscard]] static bool is_device(int fd) {
    return static_cast<std::uint8_t>(kind(fd) - 1) < kDatagrams + kMaxNics;
  }
  [[nodiscard]] static bool is_of_datagrams(int fd) {
    return is_device(fd) && device(fd) >= kDatagrams;
  }
  [[nodiscard]] static bool is_private(int fd) { return kind(fd) == kPrivate; }
  // The number of a device file.
  [[nodiscard]] static int device(int fd) { return kind(fd) - 1; }

  static void set(int fd, std::uint8_t kind) {
    kinds_[static_cast<std::size_t>(fd)].store(kind, std::memory_order_relaxed);
    int end = end_.load(std::memory_order_relaxed);
    while (end <= fd && !end_.compare_exchange_weak(end, fd + 1, std::memory_order_relaxed)) {
    }
  }
  // Only if it still is of that kind.
  static void forget(int fd, std::uint8_t kind) {
    if (fd >= 0 && fd < kMax) {
      kinds_[static_cast<std::size_t>(fd)].compare_exchange_strong(kind, 0,
                                                                   std::memory_order_relaxed);
    }
  }
  // No number from here on was ever set.
  [[nodiscard]] static int end() { return end_.load(std::memory_order_relaxed); }

 private:
  static inline std::array<std::atomic<std::uint8_t>, kMax> kinds_{};
  static inline std::atomic<int> end_{0};
};

}  // namespace weft::preload
