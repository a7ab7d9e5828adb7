// Owns the wrapped calls that open a file or a folder by name.
//
// A path that leads to an emulated device file opens a device of ours; any other emulated path
// opens the file in the tree; all others go to libc unchanged. Calls that take flags are wrapped in
// all their forms, because fortified programs call __open_2() and old ones __open(), and libc does
// not lead from one to the other through our wrappers.
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "integration/preload/fd_table.hpp"
#include "integration/preload/next.hpp"
#include "integration/preload/paths.hpp"
#include "integration/preload/process.hpp"
#include "integration/preload/rdma_netlink.hpp"

namespace weft::preload {
namespace {

bool takes_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

// The mode of a variadic open, which is there only with some flags.
mode_t mode_of(int flags, va_list arguments) {
  return takes_mode(flags) ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

// What the kernel asks of a character device before its driver. An errno, or 0.
int refusal_of_device(int flags) {
  return (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0 ? EEXIST
         : (flags & O_DIRECTORY) != 0                    ? ENOTDIR
                                                         : 0;
}

// `path` is that of its file in the tree. False: there is no such device.
bool is_there(const char* path) {
  const int error = errno;
  const bool there = syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
  errno = error;
  return there;
}

// `stock` opens the path that it is given.
template <class Open>
int open_redirected(int folder, const char* path, int flags, Open&& stock) {
  const LastLink last = (flags & O_NOFOLLOW) != 0 ? LastLink::stays : LastLink::followed;
  return redirected(folder, path, last, [&](const Redirected& to) {
    if (to.device() < 0 || !is_there(to.path())) {
      return stock(to.path());
    }
    if (const int error = refusal_of_device(flags); error != 0) {
      errno = error;
      return -1;
    }
    return open_device(to.device(), flags);
  });
}

template <class Open>
int open_at(Open* stock, int folder, const char* path, int flags, mode_t mode) {
  return open_redirected(folder, path, flags,
                         [&](const char* to) { return stock(folder, to, flags, mode); });
}

template <class Open>
int open_plain(Open* stock, const char* path, int flags, mode_t mode) {
  return open_redirected(AT_FDCWD, path, flags,
                         [&](const char* to) { return stock(to, flags, mode); });
}

using OpenFunction = int(const char*, int, ...);
using OpenAtFunction = int(int, const char*, int, ...);

}  // namespace
}  // namespace weft::preload

using weft::preload::Redirected;
using weft::preload::redirected;

WEFT_EXPORT int open(const char* path, int flags, ...) {
  WEFT_NEXT(weft::preload::OpenFunction, stock, "open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = weft::preload::mode_of(flags, arguments);
  va_end(arguments);
  return weft::preload::open_plain(stock.get(), path, flags, mode);
}

WEFT_EXPORT int open64(const char* path, int flags, ...) {
  WEFT_NEXT(weft::preload::OpenFunction, stock, "open64");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = weft::preload::mode_of(flags, arguments);
  va_end(arguments);
  return weft::preload::open_plain(stock.get(), path, flags, mode);
}

WEFT_EXPORT int openat(int folder, const char* path, int flags, ...) {
  WEFT_NEXT(weft::preload::OpenAtFunction, stock, "openat");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = weft::preload::mode_of(flags, arguments);
  va_end(arguments);
  return weft::preload::open_at(stock.get(), folder, path, flags, mode);
}

WEFT_EXPORT int openat64(int folder, const char* path, int flags, ...) {
  WEFT_NEXT(weft::preload::OpenAtFunction, stock, "openat64");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = weft::preload::mode_of(flags, arguments);
  va_end(arguments);
  return weft::preload::open_at(stock.get(), folder, path, flags, mode);
}

WEFT_EXPORT int __open_2(const char* path, int flags) {
  WEFT_NEXT(int(const char*, int), stock, "__open_2");
  return weft::preload::open_redirected(AT_FDCWD, path, flags,
                                        [&](const char* to) { return stock(to, flags); });
}

WEFT_EXPORT int __open64_2(const char* path, int flags) {
  WEFT_NEXT(int(const char*, int), stock, "__open64_2");
  return weft::preload::open_redirected(AT_FDCWD, path, flags,
                                        [&](const char* to) { return stock(to, flags); });
}

WEFT_EXPORT int __openat_2(int folder, const char* path, int flags) {
  WEFT_NEXT(int(int, const char*, int), stock, "__openat_2");
  return weft::preload::open_redirected(folder, path, flags,
                                        [&](const char* to) { return stock(folder, to, flags); });
}

WEFT_EXPORT int __openat64_2(int folder, const char* path, int flags) {
  WEFT_NEXT(int(int, const char*, int), stock, "__openat64_2");
  return weft::preload::open_redirected(folder, path, flags,
                                        [&](const char* to) { return stock(folder, to, flags); });
}

WEFT_EXPORT FILE* fopen(const char* path, const char* mode) {
  WEFT_NEXT(FILE * (const char*, const char*), stock, "fopen");
  return redirected(path, [&](const char* to) { return stock(to, mode); });
}

WEFT_EXPORT FILE* fopen64(const char* path, const char* mode) {
  WEFT_NEXT(FILE * (const char*, const char*), stock, "fopen64");
  return redirected(path, [&](const char* to) { return stock(to, mode); });
}

WEFT_EXPORT DIR* opendir(const char* path) {
  WEFT_NEXT(DIR * (const char*), stock, "opendir");
  return redirected(path, [&](const char* to) { return stock(to); });
}

namespace {
// A pattern is redirected by its beginning; what it finds is shown under the names that the program
// knows.
template <class Glob, class Result>
int glob_redirected(Glob* stock, const char* pattern, int flags, int (*error)(const char*, int),
                    Result* result) {
  const Redirected to(pattern);
  const int status = stock(to.path(), flags, error, result);
  if (status == 0 && to.path() != pattern) {
    for (std::size_t i = 0; i < result->gl_pathc; ++i) {
      weft::preload::hide_root(
          result->gl_pathv[result->gl_offs * ((flags & GLOB_DOOFFS) != 0) + i]);
    }
  }
  return status;
}
}  // namespace

WEFT_EXPORT int glob(const char* pattern, int flags, int (*error)(const char*, int),
                     glob_t* result) {
  WEFT_NEXT(int(const char*, int, int (*)(const char*, int), glob_t*), stock, "glob");
  return glob_redirected(stock.get(), pattern, flags, error, result);
}

WEFT_EXPORT int glob64(const char* pattern, int flags, int (*error)(const char*, int),
                       glob64_t* result) {
  WEFT_NEXT(int(const char*, int, int (*)(const char*, int), glob64_t*), stock, "glob64");
  return glob_redirected(stock.get(), pattern, flags, error, result);
}

// Verbs libraries ask by netlink before they look at sysfs. A kernel with RDMA would list its own
// devices there; this socket lists the emulated ones instead.
WEFT_EXPORT int socket(int domain, int type, int protocol) noexcept {
  WEFT_NEXT(int(int, int, int), stock, "socket");
  constexpr int kNetlinkRdma = 20;
  if (domain == AF_NETLINK && protocol == kNetlinkRdma && weft::preload::tree_root() != nullptr) {
    return weft::preload::open_rdma_socket(type);
  }
  return stock(domain, type, protocol);
}

namespace {
bool asks_rdma(int fd) {
  return weft::preload::FdTable::kind(fd) == weft::preload::FdTable::kNetlink &&
         weft::preload::is_still_rdma_socket(fd);
}
}  // namespace

WEFT_EXPORT ssize_t send(int fd, const void* bytes, std::size_t size, int flags) {
  WEFT_NEXT(ssize_t(int, const void*, std::size_t, int), stock, "send");
  return asks_rdma(fd) ? weft::preload::send_to_rdma(fd, bytes, size)
                       : stock(fd, bytes, size, flags);
}

WEFT_EXPORT ssize_t sendto(int fd, const void* bytes, std::size_t size, int flags,
                           const sockaddr* to, socklen_t length) {
  WEFT_NEXT(ssize_t(int, const void*, std::size_t, int, const sockaddr*, socklen_t), stock,
            "sendto");
  return asks_rdma(fd) ? weft::preload::send_to_rdma(fd, bytes, size)
                       : stock(fd, bytes, size, flags, to, length);
}

WEFT_EXPORT ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  WEFT_NEXT(ssize_t(int, const msghdr*, int), stock, "sendmsg");
  return asks_rdma(fd) ? weft::preload::send_to_rdma(fd, message) : stock(fd, message, flags);
}

WEFT_EXPORT int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  WEFT_NEXT(int(int, mmsghdr*, unsigned, int), stock, "sendmmsg");
  if (!asks_rdma(fd)) {
    return stock(fd, messages, count, flags);
  }
  int sent = 0;
  for (; sent < static_cast<int>(std::min(count, 1024U)); ++sent) {  // as many as the kernel takes
    const ssize_t size = weft::preload::send_to_rdma(fd, &messages[sent].msg_hdr);
    if (size < 0) {
      return sent == 0 ? -1 : sent;
    }
    messages[sent].msg_len = static_cast<unsigned>(size);
  }
  return sent;
}

// The names by which old programs call the same.
extern "C" {
__attribute__((visibility("default"), nonnull(1), alias("open"))) int __open(const char*, int, ...);
__attribute__((visibility("default"), nonnull(1), alias("open64"))) int __open64(const char*, int,
                                                                                 ...);
}
