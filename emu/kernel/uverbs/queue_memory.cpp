// Owns the sparse file behind a device descriptor.
#include "emu/kernel/uverbs/queue_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "emu/kernel/native.hpp"

namespace weft::kernel {
namespace {
constexpr std::size_t kPage = 4096;
}

QueueMemory::~QueueMemory() {
  if (fd_ >= 0) {
    native::close(fd_);
  }
}

int QueueMemory::open() {
  fd_ = native::move_high(memfd_create("weft-uverbs", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd_ < 0) {
    return errno;
  }
  // The application has the file, too: it must not cut off what the device looks at.
  (void)syscall(SYS_fcntl, fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);
  return 0;
}

QueueRegion QueueMemory::allocate(std::size_t bytes) {
  const std::size_t size = (bytes + kPage - 1) / kPage * kPage;
  if (size == 0 || ftruncate(fd_, static_cast<off_t>(end_ + size)) != 0) {
    return {};
  }
  void* const data =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(end_));
  if (data == MAP_FAILED) {
    return {};
  }
  const QueueRegion region{end_, size, static_cast<std::byte*>(data)};
  end_ += size;
  return region;
}

void QueueMemory::release(const QueueRegion& region) {
  if (region.data == nullptr) {
    return;
  }
  munmap(region.data, region.size);
  // Failure leaves zero-referenced pages in a file that goes away with the device; nothing to do
  // about it.
  (void)fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(region.key),
                  static_cast<off_t>(region.size));
}

}  // namespace weft::kernel
