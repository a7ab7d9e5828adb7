// Owns the sparse file behind a device descriptor.
#include "emu/kernel/uverbs/queue_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "emu/kernel/native.hpp"

namespace weft::kernel {
namespace {
constexpr std::size_t kPage = 4096;

// `ulimit -f` is meant for files: a program that is about to make a larger one gets SIGXFSZ, and by
// default ends. Below the hard limit the soft one gives way for the moment; beyond it there is no
// memory for the queue.
int extend(int fd, std::size_t size) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= size) {
    return ftruncate(fd, static_cast<off_t>(size));
  }
  if (limit.rlim_max < size) {
    return -1;
  }
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  (void)setrlimit(RLIMIT_FSIZE, &raised);
  const int result = ftruncate(fd, static_cast<off_t>(size));
  (void)setrlimit(RLIMIT_FSIZE, &limit);
  return result;
}

}  // namespace

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
  if (size == 0 || extend(fd_, end_ + size) != 0) {
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
