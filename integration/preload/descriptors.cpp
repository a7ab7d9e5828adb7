// Owns the raw system calls by which descriptors are moved, marked and cut off.
#include "integration/preload/descriptors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "emu/kernel/native.hpp"
#include "integration/preload/fd_table.hpp"

namespace weft::preload {
namespace {

constinit int nowhere = -1;  // nothing can be read from it, or written to it

}  // namespace

int keep_own(int fd) {
  int high = fd;
  if (fd < kernel::native::first_high()) {
    high = kernel::native::duplicate_high(fd);
    if (high < 0) {
      high = fd;
    } else {
      syscall(SYS_close, fd);
    }
  }
  if (high < FdTable::kMax) {
    FdTable::set(high, FdTable::kPrivate);
  }
  return high;
}

void forget_own(int fd) {
  if (fd < FdTable::kMax) {
    FdTable::set(fd, 0);
  }
}

Inode inode_of(int fd) {
  struct stat status {};
  return syscall(SYS_fstat, fd, &status) == 0 ? Inode{status.st_dev, status.st_ino} : Inode{};
}

void keep_flags(int fd, int flags) {
  syscall(SYS_fcntl, fd, F_SETFD, (flags & O_CLOEXEC) != 0 ? FD_CLOEXEC : 0);
  syscall(SYS_fcntl, fd, F_SETFL, flags & (O_NONBLOCK | O_APPEND));
}

void keep_nowhere() {
  if (nowhere < 0) {
    nowhere = kernel::native::move_high(kernel::native::open("/", O_PATH | O_CLOEXEC));
  }
}
void forget_nowhere() { nowhere = -1; }

void lead_nowhere(int fd) {
  keep_nowhere();
  syscall(SYS_dup3, nowhere, fd, O_CLOEXEC);
}

bool has_no_descriptor_left() {
  const auto one_more = static_cast<int>(syscall(SYS_fcntl, 2, F_DUPFD_CLOEXEC, 0));
  if (one_more >= 0) {
    syscall(SYS_close, one_more);
  }
  return one_more < 0 && errno == EMFILE;
}

}  // namespace weft::preload
