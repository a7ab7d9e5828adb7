// Owns the wrapped calls on descriptors. For all but ours they cost one look into a table.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <vector>

#include "integration/preload/fd_table.hpp"
#include "integration/preload/next.hpp"
#include "integration/preload/process.hpp"

using weft::preload::closing_uverbs;
using weft::preload::duplicated_uverbs;
using weft::preload::FdTable;
using weft::preload::next;

WEFT_EXPORT ssize_t write(int fd, const void* buffer, std::size_t size) {
  static auto* const stock = next<ssize_t(int, const void*, std::size_t)>("write");
  return FdTable::kind(fd) != 0 ? weft::preload::write_uverbs(fd, buffer, size)
                                : stock(fd, buffer, size);
}

WEFT_EXPORT ssize_t writev(int fd, const iovec* pieces, int count) {
  static auto* const stock = next<ssize_t(int, const iovec*, int)>("writev");
  if (FdTable::kind(fd) == 0) {
    return stock(fd, pieces, count);
  }
  if (count != 1) {  // a command is one piece
    errno = EINVAL;
    return -1;
  }
  return weft::preload::write_uverbs(fd, pieces->iov_base, pieces->iov_len);
}

WEFT_EXPORT int ioctl(int fd, unsigned long request, ...) noexcept {
  static auto* const stock = next<int(int, unsigned long, ...)>("ioctl");
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return FdTable::kind(fd) != 0 ? weft::preload::ioctl_uverbs(fd, request, argument)
                                : stock(fd, request, argument);
}

WEFT_EXPORT int close(int fd) {
  static auto* const stock = next<int(int)>("close");
  if (FdTable::kind(fd) != 0) {
    closing_uverbs(fd);
  }
  return stock(fd);
}

namespace {
void closing_range(unsigned first, unsigned last) {
  const unsigned end = std::min(last, static_cast<unsigned>(FdTable::kMost - 1));
  for (unsigned fd = first; fd <= end; ++fd) {
    if (FdTable::kind(static_cast<int>(fd)) != 0) {
      closing_uverbs(static_cast<int>(fd));
    }
  }
}

// What duplicates a descriptor may also close the one that had the number.
int duplicated(int fd, int copy) {
  if (copy >= 0 && FdTable::kind(fd) != 0) {
    duplicated_uverbs(fd, copy);
  }
  return copy;
}

void closing_target(int fd, int target) {
  if (fd != target && FdTable::kind(target) != 0) {
    closing_uverbs(target);
  }
}
}  // namespace

WEFT_EXPORT int close_range(unsigned first, unsigned last, int flags) noexcept {
  static auto* const stock = next<int(unsigned, unsigned, int)>("close_range");
  constexpr int kOnlyOnExec = 4;  // CLOSE_RANGE_CLOEXEC
  if ((flags & kOnlyOnExec) == 0) {
    closing_range(first, last);
  }
  return stock(first, last, flags);
}

WEFT_EXPORT void closefrom(int first) noexcept {
  static auto* const stock = next<void(int)>("closefrom");
  closing_range(static_cast<unsigned>(std::max(first, 0)), ~0U);
  stock(first);
}

WEFT_EXPORT int dup(int fd) noexcept {
  static auto* const stock = next<int(int)>("dup");
  return duplicated(fd, stock(fd));
}

WEFT_EXPORT int dup2(int fd, int target) noexcept {
  static auto* const stock = next<int(int, int)>("dup2");
  closing_target(fd, target);
  return duplicated(fd, stock(fd, target));
}

WEFT_EXPORT int dup3(int fd, int target, int flags) noexcept {
  static auto* const stock = next<int(int, int, int)>("dup3");
  closing_target(fd, target);
  return duplicated(fd, stock(fd, target, flags));
}

namespace {
template <class Fcntl>
int fcntl_any(Fcntl* stock, int fd, int command, void* argument) {
  const int result = stock(fd, command, argument);
  return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? duplicated(fd, result) : result;
}
}  // namespace

WEFT_EXPORT int fcntl(int fd, int command, ...) {
  static auto* const stock = next<int(int, int, ...)>("fcntl");
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return fcntl_any(stock, fd, command, argument);
}

WEFT_EXPORT int fcntl64(int fd, int command, ...) {
  static auto* const stock = next<int(int, int, ...)>("fcntl64");
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return fcntl_any(stock, fd, command, argument);
}
