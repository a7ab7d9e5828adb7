// Owns the wrapped calls that ask about a file. An emulated device file is a regular file in the
// tree; here it appears as a character device.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstring>

#include "emu/kernel/sysfs/sysfs.hpp"
#include "integration/preload/fd_table.hpp"
#include "integration/preload/next.hpp"
#include "integration/preload/paths.hpp"
#include "integration/preload/process.hpp"

namespace weft::preload {
namespace {

constexpr mode_t kDeviceMode = S_IFCHR | 0666;

unsigned major_of(int device) {
  return device == FdTable::kConnections ? kernel::kMiscMajor : kernel::kUverbsMajor;
}
unsigned minor_of(int device) {
  if (device == FdTable::kConnections) {
    return kernel::kConnectionsMinor;
  }
  const auto number = static_cast<unsigned>(device);
  return device >= FdTable::kDatagrams ? kernel::kUmadFirstMinor + number - FdTable::kDatagrams
                                       : kernel::kUverbsFirstMinor + number;
}

template <class Stat>
void show_device(int device, Stat* to) {
  to->st_mode = kDeviceMode;
  to->st_rdev = makedev(major_of(device), minor_of(device));
  to->st_size = 0;
}

// `ask` calls the stock function with the path that it is given.
template <class Stat, class Ask>
int stat_path(int folder, const char* path, LastLink last, Stat* to, Ask&& ask) {
  return redirected(folder, path, last, [&](const Redirected& where) {
    const int result = ask(where.path());
    if (result == 0 && where.device() >= 0) {
      show_device(where.device(), to);
    }
    return result;
  });
}

LastLink last_link(int flags) {
  return (flags & AT_SYMLINK_NOFOLLOW) != 0 ? LastLink::stays : LastLink::followed;
}

template <class Stat>
int stat_fd(int fd, Stat* to, int result) {
  if (result == 0 && FdTable::is_device(fd) && is_still_device(fd)) {
    show_device(FdTable::device(fd), to);
  }
  return result;
}

// With AT_EMPTY_PATH and an empty path, the question is about the descriptor `folder` itself.
template <class Stat, class Ask>
int stat_at(int folder, const char* path, int flags, Stat* to, Ask&& ask) {
  const int result = stat_path(folder, path, last_link(flags), to, ask);
  const bool empty = result == 0 && (path == nullptr || *path == '\0');
  return (flags & AT_EMPTY_PATH) != 0 && empty ? stat_fd(folder, to, result) : result;
}

// Until glibc 2.33 stat() and its relatives were inline functions of the headers: libc itself had
// only what they called.
constexpr int kStatVersion = 1;
static_assert(sizeof(struct stat) == sizeof(struct stat64));  // one layout for both names
WEFT_NEXT(int(int, const char*, void*), stock_xstat, "__xstat64");
WEFT_NEXT(int(int, const char*, void*), stock_lxstat, "__lxstat64");
WEFT_NEXT(int(int, int, void*), stock_fxstat, "__fxstat64");
WEFT_NEXT(int(int, int, const char*, void*, int), stock_fxstatat, "__fxstatat64");

template <class Stat>
int former_stat(const char* path, Stat* to) noexcept {
  return stock_xstat(kStatVersion, path, to);
}
template <class Stat>
int former_lstat(const char* path, Stat* to) noexcept {
  return stock_lxstat(kStatVersion, path, to);
}
template <class Stat>
int former_fstat(int fd, Stat* to) noexcept {
  return stock_fxstat(kStatVersion, fd, to);
}
template <class Stat>
int former_fstatat(int folder, const char* path, Stat* to, int flags) noexcept {
  return stock_fxstatat(kStatVersion, folder, path, to, flags);
}

}  // namespace
}  // namespace weft::preload

using namespace weft::preload;  // NOLINT: the wrappers have to be in the global namespace

using Stat = struct stat;
using Stat64 = struct stat64;

WEFT_EXPORT int stat(const char* path, Stat* to) noexcept {
  WEFT_NEXT(int(const char*, Stat*), stock, "stat", former_stat<Stat>);
  return stat_path(AT_FDCWD, path, LastLink::followed, to,
                   [&](const char* where) { return stock(where, to); });
}
WEFT_EXPORT int stat64(const char* path, Stat64* to) noexcept {
  WEFT_NEXT(int(const char*, Stat64*), stock, "stat64", former_stat<Stat64>);
  return stat_path(AT_FDCWD, path, LastLink::followed, to,
                   [&](const char* where) { return stock(where, to); });
}
WEFT_EXPORT int lstat(const char* path, Stat* to) noexcept {
  WEFT_NEXT(int(const char*, Stat*), stock, "lstat", former_lstat<Stat>);
  return stat_path(AT_FDCWD, path, LastLink::stays, to,
                   [&](const char* where) { return stock(where, to); });
}
WEFT_EXPORT int lstat64(const char* path, Stat64* to) noexcept {
  WEFT_NEXT(int(const char*, Stat64*), stock, "lstat64", former_lstat<Stat64>);
  return stat_path(AT_FDCWD, path, LastLink::stays, to,
                   [&](const char* where) { return stock(where, to); });
}
WEFT_EXPORT int fstat(int fd, Stat* to) noexcept {
  WEFT_NEXT(int(int, Stat*), stock, "fstat", former_fstat<Stat>);
  return stat_fd(fd, to, stock(fd, to));
}
WEFT_EXPORT int fstat64(int fd, Stat64* to) noexcept {
  WEFT_NEXT(int(int, Stat64*), stock, "fstat64", former_fstat<Stat64>);
  return stat_fd(fd, to, stock(fd, to));
}
WEFT_EXPORT int fstatat(int folder, const char* path, Stat* to, int flags) noexcept {
  WEFT_NEXT(int(int, const char*, Stat*, int), stock, "fstatat", former_fstatat<Stat>);
  return stat_at(folder, path, flags, to,
                 [&](const char* where) { return stock(folder, where, to, flags); });
}
WEFT_EXPORT int fstatat64(int folder, const char* path, Stat64* to, int flags) noexcept {
  WEFT_NEXT(int(int, const char*, Stat64*, int), stock, "fstatat64", former_fstatat<Stat64>);
  return stat_at(folder, path, flags, to,
                 [&](const char* where) { return stock(folder, where, to, flags); });
}

// The names that programs built before glibc 2.33 use. The version argument has one value on this
// machine.
WEFT_EXPORT int __xstat(int version, const char* path, Stat* to) noexcept {
  WEFT_NEXT(int(int, const char*, Stat*), stock, "__xstat");
  return stat_path(AT_FDCWD, path, LastLink::followed, to,
                   [&](const char* where) { return stock(version, where, to); });
}
WEFT_EXPORT int __xstat64(int version, const char* path, Stat64* to) noexcept {
  WEFT_NEXT(int(int, const char*, Stat64*), stock, "__xstat64");
  return stat_path(AT_FDCWD, path, LastLink::followed, to,
                   [&](const char* where) { return stock(version, where, to); });
}
WEFT_EXPORT int __lxstat(int version, const char* path, Stat* to) noexcept {
  WEFT_NEXT(int(int, const char*, Stat*), stock, "__lxstat");
  return stat_path(AT_FDCWD, path, LastLink::stays, to,
                   [&](const char* where) { return stock(version, where, to); });
}
WEFT_EXPORT int __lxstat64(int version, const char* path, Stat64* to) noexcept {
  WEFT_NEXT(int(int, const char*, Stat64*), stock, "__lxstat64");
  return stat_path(AT_FDCWD, path, LastLink::stays, to,
                   [&](const char* where) { return stock(version, where, to); });
}
WEFT_EXPORT int __fxstat(int version, int fd, Stat* to) noexcept {
  WEFT_NEXT(int(int, int, Stat*), stock, "__fxstat");
  return stat_fd(fd, to, stock(version, fd, to));
}
WEFT_EXPORT int __fxstat64(int version, int fd, Stat64* to) noexcept {
  WEFT_NEXT(int(int, int, Stat64*), stock, "__fxstat64");
  return stat_fd(fd, to, stock(version, fd, to));
}
WEFT_EXPORT int __fxstatat(int version, int folder, const char* path, Stat* to,
                           int flags) noexcept {
  WEFT_NEXT(int(int, int, const char*, Stat*, int), stock, "__fxstatat");
  return stat_at(folder, path, flags, to,
                 [&](const char* where) { return stock(version, folder, where, to, flags); });
}
WEFT_EXPORT int __fxstatat64(int version, int folder, const char* path, Stat64* to,
                             int flags) noexcept {
  WEFT_NEXT(int(int, int, const char*, Stat64*, int), stock, "__fxstatat64");
  return stat_at(folder, path, flags, to,
                 [&](const char* where) { return stock(version, folder, where, to, flags); });
}

WEFT_EXPORT int statx(int folder, const char* path, int flags, unsigned mask,
                      struct statx* to) noexcept {
  WEFT_NEXT(int(int, const char*, int, unsigned, struct statx*), stock, "statx");
  int named = -1;
  const int result = redirected(folder, path, last_link(flags), [&](const Redirected& where) {
    named = where.device();
    return stock(folder, where.path(), flags, mask, to);
  });
  const bool of_fd =
      result == 0 && (flags & AT_EMPTY_PATH) != 0 && (path == nullptr || *path == '\0');
  const bool of_device = of_fd && FdTable::is_device(folder) && is_still_device(folder);
  const int device = !of_fd ? named : of_device ? FdTable::device(folder) : -1;
  if (result == 0 && device >= 0) {
    to->stx_mode = kDeviceMode;
    to->stx_rdev_major = major_of(device);
    to->stx_rdev_minor = minor_of(device);
  }
  return result;
}

WEFT_EXPORT int access(const char* path, int mode) noexcept {
  WEFT_NEXT(int(const char*, int), stock, "access");
  return redirected(path, [&](const char* to) { return stock(to, mode); });
}
WEFT_EXPORT int euidaccess(const char* path, int mode) noexcept {
  WEFT_NEXT(int(const char*, int), stock, "euidaccess");
  return redirected(path, [&](const char* to) { return stock(to, mode); });
}
WEFT_EXPORT int eaccess(const char* path, int mode) noexcept {
  WEFT_NEXT(int(const char*, int), stock, "eaccess");
  return redirected(path, [&](const char* to) { return stock(to, mode); });
}
WEFT_EXPORT int faccessat(int folder, const char* path, int mode, int flags) noexcept {
  WEFT_NEXT(int(int, const char*, int, int), stock, "faccessat");
  return redirected(folder, path, last_link(flags),
                    [&](const Redirected& to) { return stock(folder, to.path(), mode, flags); });
}
