// Owns the memory that one open device file shares with the application: a sparse file whose
// offsets are the keys for mmap, with the device's own writable view of each piece.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::kernel {

// One piece: zeroed, page aligned, mapped here read-write whatever the application maps or unmaps.
struct QueueRegion {
  std::uint64_t key = 0;  // offset in the device file
  std::size_t size = 0;
  std::byte* data = nullptr;
};

// The application maps pieces by their key through its descriptor of the same file. The file is
// sealed, so no process can make it shorter.
class QueueMemory {
 public:
  QueueMemory() = default;
  ~QueueMemory();
  QueueMemory(const QueueMemory&) = delete;
  QueueMemory& operator=(const QueueMemory&) = delete;

  // An errno, or 0.
  [[nodiscard]] int open();
  // The native descriptor; the application's is a duplicate of it.
  [[nodiscard]] int fd() const { return fd_; }

  // Data is null when the memory cannot be had. Offsets are never used twice: a mapping of a freed
  // piece may live on in the application and must not see another queue.
  [[nodiscard]] QueueRegion allocate(std::size_t bytes);
  void release(const QueueRegion& region);

 private:
  int fd_ = -1;
  std::uint64_t end_ = 0;
};

}  // namespace weft::kernel
