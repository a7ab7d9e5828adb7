// Owns the wrapped calls on descriptors. For descriptors of the program's own, each costs one look
// into FdTable.
//
// A device file is a real descriptor (a memfd that the library maps its queues from), so what is
// not wrapped here, such as mmap, poll or fcntl's flags, is the kernel's. What a write or an ioctl
// on it means is ours: write_device() and ioctl_device() run the command in this process.
//
// FdTable may be out of date, since a program can close a descriptor by a system call of its own:
// before anything is done to a device, is_still_device() asks the kernel.
#include <fcntl.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <span>

#include "emu/kernel/user_memory.hpp"
#include "integration/preload/device_calls.hpp"
#include "integration/preload/fd_table.hpp"
#include "integration/preload/next.hpp"
#include "integration/preload/process.hpp"
#include "integration/preload/rdma_netlink.hpp"

using weft::preload::FdTable;
using weft::preload::StockCall;
using weft::preload::write_post;

namespace {
bool is_device(int fd) { return FdTable::is_device(fd) && weft::preload::is_still_device(fd); }
bool has_datagrams(int fd) {
  return FdTable::is_of_datagrams(fd) && weft::preload::is_still_device(fd);
}
bool asks_rdma(int fd) {
  return FdTable::kind(fd) == FdTable::kNetlink && weft::preload::is_still_rdma_socket(fd);
}
}  // namespace

WEFT_EXPORT ssize_t write(int fd, const void* buffer, std::size_t size) {
  WEFT_NEXT(ssize_t(int, const void*, std::size_t), stock, "write");
  if (asks_rdma(fd)) {
    return weft::preload::send_to_rdma(fd, buffer, size);
  }
  if (ssize_t result = 0; FdTable::is_device(fd) && write_post(fd, buffer, size, result)) {
    return result;
  }
  return is_device(fd) ? weft::preload::write_device(fd, buffer, size) : stock(fd, buffer, size);
}

// Only datagrams are read; events of other device files come by descriptors of the kernel's.
WEFT_EXPORT ssize_t read(int fd, void* buffer, std::size_t size) {
  WEFT_NEXT(ssize_t(int, void*, std::size_t), stock, "read");
  return has_datagrams(fd) ? weft::preload::read_datagram(fd, buffer, size)
                           : stock(fd, buffer, size);
}
WEFT_EXPORT ssize_t __read_chk(int fd, void* buffer, std::size_t size, std::size_t room) {
  WEFT_NEXT(ssize_t(int, void*, std::size_t, std::size_t), stock, "__read_chk");
  return has_datagrams(fd) && size <= room ? weft::preload::read_datagram(fd, buffer, size)
                                           : stock(fd, buffer, size, room);
}
WEFT_EXPORT ssize_t readv(int fd, const iovec* pieces, int count) {
  WEFT_NEXT(ssize_t(int, const iovec*, int), stock, "readv");
  if (!has_datagrams(fd)) {
    return stock(fd, pieces, count);
  }
  iovec piece{};
  if (count != 1 || !weft::kernel::copy_from_user(std::as_writable_bytes(std::span(&piece, 1)),
                                                  reinterpret_cast<std::uintptr_t>(pieces))) {
    errno = count != 1 ? EINVAL : EFAULT;  // a datagram is read into one piece
    return -1;
  }
  return weft::preload::read_datagram(fd, piece.iov_base, piece.iov_len);
}

WEFT_EXPORT ssize_t writev(int fd, const iovec* pieces, int count) {
  WEFT_NEXT(ssize_t(int, const iovec*, int), stock, "writev");
  if (asks_rdma(fd) && count >= 0) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces);
    message.msg_iovlen = static_cast<std::size_t>(count);
    return weft::preload::send_to_rdma(fd, &message);
  }
  if (!is_device(fd)) {
    return stock(fd, pieces, count);
  }
  if (count != 1) {  // a command is one piece
    errno = EINVAL;
    return -1;
  }
  iovec piece{};
  if (!weft::kernel::copy_from_user(std::as_writable_bytes(std::span(&piece, 1)),
                                    reinterpret_cast<std::uintptr_t>(pieces))) {
    errno = EFAULT;
    return -1;
  }
  return weft::preload::write_device(fd, piece.iov_base, piece.iov_len);
}

namespace {

// A device file has no position to write at (ESPIPE), and no file has one before its beginning.
template <class Offset>
ssize_t refuse_position(Offset offset) {
  errno = offset < 0 ? EINVAL : ESPIPE;
  return -1;
}

// Position -1 is where the file stands.
template <class Stock, class Offset>
ssize_t write_pieces_at(Stock& stock, int fd, const iovec* pieces, int count, Offset offset,
                        int flags) {
  if (!is_device(fd)) {
    return stock(fd, pieces, count, offset, flags);
  }
  return offset == -1 ? writev(fd, pieces, count) : refuse_position(offset);
}

}  // namespace

WEFT_EXPORT ssize_t pwrite(int fd, const void* buffer, std::size_t size, off_t offset) {
  WEFT_NEXT(ssize_t(int, const void*, std::size_t, off_t), stock, "pwrite");
  return is_device(fd) ? refuse_position(offset) : stock(fd, buffer, size, offset);
}
WEFT_EXPORT ssize_t pwrite64(int fd, const void* buffer, std::size_t size, off64_t offset) {
  WEFT_NEXT(ssize_t(int, const void*, std::size_t, off64_t), stock, "pwrite64");
  return is_device(fd) ? refuse_position(offset) : stock(fd, buffer, size, offset);
}
WEFT_EXPORT ssize_t pwritev(int fd, const iovec* pieces, int count, off_t offset) {
  WEFT_NEXT(ssize_t(int, const iovec*, int, off_t), stock, "pwritev");
  return is_device(fd) ? refuse_position(offset) : stock(fd, pieces, count, offset);
}
WEFT_EXPORT ssize_t pwritev64(int fd, const iovec* pieces, int count, off64_t offset) {
  WEFT_NEXT(ssize_t(int, const iovec*, int, off64_t), stock, "pwritev64");
  return is_device(fd) ? refuse_position(offset) : stock(fd, pieces, count, offset);
}
WEFT_EXPORT ssize_t pwritev2(int fd, const iovec* pieces, int count, off_t offset, int flags) {
  WEFT_NEXT(ssize_t(int, const iovec*, int, off_t, int), stock, "pwritev2");
  return write_pieces_at(stock, fd, pieces, count, offset, flags);
}
WEFT_EXPORT ssize_t pwritev64v2(int fd, const iovec* pieces, int count, off64_t offset, int flags) {
  WEFT_NEXT(ssize_t(int, const iovec*, int, off64_t, int), stock, "pwritev64v2");
  return write_pieces_at(stock, fd, pieces, count, offset, flags);
}

namespace {
// What the kernel answers for every file, without its driver.
bool is_of_any_file(unsigned long request) {
  const auto number = static_cast<unsigned>(request);  // as much as the kernel looks at
  return number == FIONBIO || number == FIOASYNC || number == FIOCLEX || number == FIONCLEX;
}
}  // namespace

WEFT_EXPORT int ioctl(int fd, unsigned long request, ...) noexcept {
  WEFT_NEXT(int(int, unsigned long, ...), stock, "ioctl");
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return is_device(fd) && !is_of_any_file(request)
             ? weft::preload::ioctl_device(fd, request, argument)
             : stock(fd, request, argument);
}

namespace {

// Our own descriptors do not exist for the program.
int refuse_private(int error) {
  errno = error;
  return -1;
}

}  // namespace

WEFT_EXPORT int close(int fd) {
  WEFT_NEXT(int(int), stock, "close");
  if (FdTable::kind(fd) != 0) {
    if (FdTable::is_private(fd)) {
      return refuse_private(EBADF);
    }
    if (FdTable::is_device(fd)) {
      pthread_testcancel();  // libc's close() is a point of cancellation
      return weft::preload::close_file(fd, StockCall([fd] { return stock(fd); }));
    }
    weft::preload::closing(fd);
  }
  return stock(fd);
}

// libc's fclose() closes the descriptor without calling our close().
WEFT_EXPORT int fclose(FILE* stream) {
  WEFT_NEXT(int(FILE*), stock, "fclose");
  const int fd = fileno(stream);
  if (FdTable::kind(fd) != 0 && !FdTable::is_private(fd)) {
    weft::preload::closing(fd);
  }
  return stock(stream);
}

namespace {

// Closes what is from `first` to `last`, itself included, except our own, by `close_some(from,
// to)`. The first failure ends it.
template <class CloseSome>
int close_around(unsigned first, unsigned last, CloseSome&& close_some) {
  const auto end = static_cast<unsigned>(FdTable::end());
  for (unsigned fd = first; fd < end && fd <= last; ++fd) {
    if (const auto kind = FdTable::kind(static_cast<int>(fd)); kind == FdTable::kPrivate) {
      if (fd > first && close_some(first, fd - 1) != 0) {
        return -1;
      }
      first = fd + 1;
    } else if (FdTable::is_device(static_cast<int>(fd))) {
      const auto close_one = [fd] { return static_cast<int>(syscall(SYS_close, fd)); };
      (void)weft::preload::close_file(static_cast<int>(fd), StockCall(close_one));
    } else if (kind != 0) {
      weft::preload::closing(static_cast<int>(fd));
    }
  }
  return first <= last ? close_some(first, last) : 0;
}

bool is_of_table(int fd) {
  return FdTable::is_device(fd) || FdTable::kind(fd) == FdTable::kChannel;
}

// `stock` makes the copy, whose number is `target`, or any (-1).
template <class Stock>
int duplicate(int fd, int target, const Stock& stock) {
  const bool is_rdma_socket = asks_rdma(fd);
  if (is_of_table(fd) || is_of_table(target)) {
    const int copy = weft::preload::duplicate(fd, target, StockCall(stock));
    if (copy < 0 || !is_rdma_socket) {
      return copy;
    }
    weft::preload::duplicated_rdma_socket(copy);
    return copy;
  }
  const int copy = stock();
  if (copy >= 0 && is_rdma_socket) {
    weft::preload::duplicated_rdma_socket(copy);
  } else if (copy >= 0 && copy == target) {
    weft::preload::closing_rdma_socket(target);
    (void)is_device(target);  // another thread may have opened one there before it was replaced
  }
  return copy;
}

// For dup2() and dup3(): the target may be a device file of ours, which ends thereby, but not a
// descriptor of ours.
template <class Stock>
int duplicate_to(int fd, int target, const Stock& stock) {
  if (FdTable::is_private(fd)) {
    return refuse_private(EBADF);
  }
  if (FdTable::is_private(target)) {
    return refuse_private(EBUSY);
  }
  return fd == target ? stock() : duplicate(fd, target, stock);
}

// For a libc before 2.34.
int former_close_range(unsigned first, unsigned last, int flags) noexcept {
  return static_cast<int>(syscall(SYS_close_range, first, last, flags));
}
void former_closefrom(int first) noexcept {
  (void)former_close_range(static_cast<unsigned>(first), ~0U, 0);
}

}  // namespace

// A range may include our own descriptors, which stay open: programs close everything that they do
// not know before they start others.
WEFT_EXPORT int close_range(unsigned first, unsigned last, int flags) noexcept {
  WEFT_NEXT(int(unsigned, unsigned, int), stock, "close_range", former_close_range);
  constexpr int kUnshare = 2;     // CLOSE_RANGE_UNSHARE
  constexpr int kOnlyOnExec = 4;  // CLOSE_RANGE_CLOEXEC: ours have that already
  if ((flags & kOnlyOnExec) != 0 || (flags & ~kUnshare) != 0 || first > last) {
    return stock(first, last, flags);
  }
  return close_around(first, last,
                      [&](unsigned from, unsigned to) { return stock(from, to, flags); });
}

WEFT_EXPORT void closefrom(int first) noexcept {
  WEFT_NEXT(void(int), stock, "closefrom", former_closefrom);
  (void)close_around(static_cast<unsigned>(std::max(first, 0)), ~0U,
                     [](unsigned from, unsigned to) {
                       if (to == ~0U) {
                         stock(static_cast<int>(from));
                         return 0;
                       }
                       for (unsigned fd = from; fd <= to; ++fd) {
                         (void)syscall(SYS_close, fd);
                       }
                       return 0;
                     });
}

WEFT_EXPORT int dup(int fd) noexcept {
  WEFT_NEXT(int(int), stock, "dup");
  return duplicate(fd, -1, [fd] { return stock(fd); });
}

WEFT_EXPORT int dup2(int fd, int target) noexcept {
  WEFT_NEXT(int(int, int), stock, "dup2");
  return duplicate_to(fd, target, [&] { return stock(fd, target); });
}

WEFT_EXPORT int dup3(int fd, int target, int flags) noexcept {
  WEFT_NEXT(int(int, int, int), stock, "dup3");
  return duplicate_to(fd, target, [&] { return stock(fd, target, flags); });
}

namespace {
// Two of the commands make a copy of the descriptor; all others are the kernel's, which does not
// know what the program may do with a device file.
template <class Fcntl>
int fcntl_any(Fcntl* stock, int fd, int command, void* argument) {
  const auto call = [=] { return stock(fd, command, argument); };
  if (command == F_GETFL && is_device(fd)) {
    const int flags = call();
    return flags < 0 ? flags : (flags & ~O_ACCMODE) | weft::preload::access_mode(fd);
  }
  return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? duplicate(fd, -1, call) : call();
}
}  // namespace

WEFT_EXPORT int fcntl(int fd, int command, ...) {
  WEFT_NEXT(int(int, int, ...), stock, "fcntl");
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return fcntl_any(stock.get(), fd, command, argument);
}

WEFT_EXPORT int fcntl64(int fd, int command, ...) {
  WEFT_NEXT(int(int, int, ...), stock, "fcntl64");
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return fcntl_any(stock.get(), fd, command, argument);
}

// The names by which glibc's other libraries, and old programs, call the same.
extern "C" {
__attribute__((visibility("default"), alias("write"))) ssize_t __write(int, const void*,
                                                                       std::size_t);
__attribute__((visibility("default"), alias("read"))) ssize_t __read(int, void*, std::size_t);
__attribute__((visibility("default"), alias("pwrite64"))) ssize_t __pwrite64(int, const void*,
                                                                             std::size_t, off64_t);
__attribute__((visibility("default"), alias("close"))) int __close(int);
__attribute__((visibility("default"), alias("dup2"))) int __dup2(int, int) noexcept;
__attribute__((visibility("default"), alias("fcntl"))) int __fcntl(int, int, ...);
}
