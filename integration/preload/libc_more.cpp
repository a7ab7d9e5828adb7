// Owns the wrapped calls that few programs make: changing into a folder, walking trees, watching,
// and older calls to open files.
//
// Paths go in redirected: a path below an emulated folder becomes one below the device tree. Paths
// come out with the tree's place hidden again (hide_root(), visible()), so that the program never
// sees a name that it has not used.
#include <fcntl.h>
#include <ftw.h>
#include <sys/inotify.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "integration/preload/next.hpp"
#include "integration/preload/paths.hpp"
#include "integration/preload/process.hpp"

using weft::preload::hide_root;
using weft::preload::PathLease;
using weft::preload::Redirected;
using weft::preload::redirected;
using weft::preload::visible;

WEFT_EXPORT int creat(const char* path, mode_t mode) {
  return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

WEFT_EXPORT int creat64(const char* path, mode_t mode) {
  return open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

WEFT_EXPORT FILE* freopen(const char* path, const char* mode, FILE* stream) {
  WEFT_NEXT(FILE * (const char*, const char*, FILE*), stock, "freopen");
  return stock(Redirected(path).path(), mode, stream);
}

WEFT_EXPORT FILE* freopen64(const char* path, const char* mode, FILE* stream) {
  WEFT_NEXT(FILE * (const char*, const char*, FILE*), stock, "freopen64");
  return stock(Redirected(path).path(), mode, stream);
}

// --- Where a program is. It sees the folder's emulated name.

WEFT_EXPORT int chdir(const char* path) noexcept {
  WEFT_NEXT(int(const char*), stock, "chdir");
  return redirected(path, [&](const char* to) { return stock(to); });
}

namespace {

// The folder's real name did not fit into `size` bytes, but the shorter one that the program sees
// may. As getcwd().
[[gnu::noinline]] char* fit_folder(char* to, std::size_t size) {
  PathLease space;
  if (!space.take() || syscall(SYS_getcwd, space->whole, sizeof space->whole) <= 0) {
    return nullptr;
  }
  const char* const shown = visible(space->whole);
  const std::size_t length = std::strlen(shown) + 1;
  if (shown == space->whole || length > size) {
    errno = ERANGE;
    return nullptr;
  }
  to = to != nullptr ? to : static_cast<char*>(std::malloc(size));
  return to == nullptr ? nullptr : static_cast<char*>(std::memcpy(to, shown, length));
}

// `path` is what libc's getcwd(to, size) has answered.
char* show_folder(char* path, char* to, std::size_t size) {
  if (path == nullptr && errno == ERANGE) {
    return fit_folder(to, size);
  }
  hide_root(path);
  return path;
}

}  // namespace

WEFT_EXPORT char* getcwd(char* to, std::size_t size) noexcept {
  WEFT_NEXT(char*(char*, std::size_t), stock, "getcwd");
  return show_folder(stock(to, size), to, size);
}

WEFT_EXPORT char* __getcwd_chk(char* to, std::size_t size, std::size_t room) noexcept {
  WEFT_NEXT(char*(char*, std::size_t, std::size_t), stock, "__getcwd_chk");
  return show_folder(stock(to, size, room), to, size);
}

WEFT_EXPORT char* getwd(char* to) noexcept {
  WEFT_NEXT(char*(char*), stock, "getwd");
  char* const path = stock(to);
  hide_root(path);
  return path;
}

WEFT_EXPORT char* __getwd_chk(char* to, std::size_t room) noexcept {
  WEFT_NEXT(char*(char*, std::size_t), stock, "__getwd_chk");
  char* const path = stock(to, room);
  hide_root(path);
  return path;
}

WEFT_EXPORT char* get_current_dir_name() noexcept {
  WEFT_NEXT(char*(), stock, "get_current_dir_name");
  char* const path = stock();
  hide_root(path);
  return path;
}

// --- Trees

namespace {

// The program's visitor in the walk of this thread: nftw() takes a plain function, which cannot
// carry it. Walks may nest, hence Visiting, which restores the outer one.
template <class Visit>
thread_local Visit* visitor = nullptr;

template <class Visit>
class Visiting {
 public:
  explicit Visiting(Visit* now) : before_(visitor<Visit>) { visitor<Visit> = now; }
  ~Visiting() { visitor<Visit> = before_; }
  Visiting(const Visiting&) = delete;
  Visiting& operator=(const Visiting&) = delete;

 private:
  Visit* before_;
};

// `base` is an offset into the path, and moves with what is hidden.
template <class Visit, class Stat>
int visit_hidden(const char* path, const Stat* status, int type, FTW* place) {
  const char* const shown = visible(path);
  FTW moved = *place;
  moved.base -= static_cast<int>(shown - path);
  return visitor<Visit>(shown, status, type, &moved);
}

template <class Walk, class Visit, class Stat>
int walk(Walk* stock, const char* path, Visit* visit, int descriptors, int flags) {
  const Redirected to(path);
  if (to.path() == path) {
    return stock(path, visit, descriptors, flags);
  }
  const Visiting<Visit> now(visit);
  return stock(to.path(), visit_hidden<Visit, Stat>, descriptors, flags);
}

using Visit = int(const char*, const struct stat*, int, FTW*);
using Visit64 = int(const char*, const struct stat64*, int, FTW*);

}  // namespace

WEFT_EXPORT int nftw(const char* path, Visit* visit, int descriptors, int flags) {
  WEFT_NEXT(int(const char*, Visit*, int, int), stock, "nftw");
  return walk<int(const char*, Visit*, int, int), Visit, struct stat>(stock.get(), path, visit,
                                                                      descriptors, flags);
}

WEFT_EXPORT int nftw64(const char* path, Visit64* visit, int descriptors, int flags) {
  WEFT_NEXT(int(const char*, Visit64*, int, int), stock, "nftw64");
  return walk<int(const char*, Visit64*, int, int), Visit64, struct stat64>(
      stock.get(), path, visit, descriptors, flags);
}

namespace {

// The same for ftw(), whose visitor gets no offset into the path.
template <class Visit, class Stat>
int visit_hidden_plain(const char* path, const Stat* status, int type) {
  return visitor<Visit>(visible(path), status, type);
}

template <class Visit, class Stat, class Walk>
int walk_plain(Walk* stock, const char* path, Visit* visit, int descriptors) {
  const Redirected to(path);
  if (to.path() == path) {
    return stock(path, visit, descriptors);
  }
  const Visiting<Visit> now(visit);
  return stock(to.path(), visit_hidden_plain<Visit, Stat>, descriptors);
}

using PlainVisit = int(const char*, const struct stat*, int);
using PlainVisit64 = int(const char*, const struct stat64*, int);

}  // namespace

WEFT_EXPORT int ftw(const char* path, PlainVisit* visit, int descriptors) {
  WEFT_NEXT(int(const char*, PlainVisit*, int), stock, "ftw");
  return walk_plain<PlainVisit, struct stat>(stock.get(), path, visit, descriptors);
}

WEFT_EXPORT int ftw64(const char* path, PlainVisit64* visit, int descriptors) {
  WEFT_NEXT(int(const char*, PlainVisit64*, int), stock, "ftw64");
  return walk_plain<PlainVisit64, struct stat64>(stock.get(), path, visit, descriptors);
}

// --- File systems and watches

WEFT_EXPORT int statfs(const char* path, struct statfs* to) noexcept {
  WEFT_NEXT(int(const char*, struct statfs*), stock, "statfs");
  return stock(Redirected(path).path(), to);
}

WEFT_EXPORT int statfs64(const char* path, struct statfs64* to) noexcept {
  WEFT_NEXT(int(const char*, struct statfs64*), stock, "statfs64");
  return stock(Redirected(path).path(), to);
}

WEFT_EXPORT int statvfs(const char* path, struct statvfs* to) noexcept {
  WEFT_NEXT(int(const char*, struct statvfs*), stock, "statvfs");
  return stock(Redirected(path).path(), to);
}

WEFT_EXPORT int statvfs64(const char* path, struct statvfs64* to) noexcept {
  WEFT_NEXT(int(const char*, struct statvfs64*), stock, "statvfs64");
  return stock(Redirected(path).path(), to);
}

WEFT_EXPORT int inotify_add_watch(int fd, const char* path, std::uint32_t mask) noexcept {
  WEFT_NEXT(int(int, const char*, std::uint32_t), stock, "inotify_add_watch");
  return stock(fd, Redirected(path).path(), mask);
}

// --- Extended attributes, for which every long listing asks

WEFT_EXPORT ssize_t getxattr(const char* path, const char* name, void* to,
                             std::size_t size) noexcept {
  WEFT_NEXT(ssize_t(const char*, const char*, void*, std::size_t), stock, "getxattr");
  return stock(Redirected(path).path(), name, to, size);
}

WEFT_EXPORT ssize_t lgetxattr(const char* path, const char* name, void* to,
                              std::size_t size) noexcept {
  WEFT_NEXT(ssize_t(const char*, const char*, void*, std::size_t), stock, "lgetxattr");
  return stock(Redirected(path).path(), name, to, size);
}

WEFT_EXPORT ssize_t listxattr(const char* path, char* to, std::size_t size) noexcept {
  WEFT_NEXT(ssize_t(const char*, char*, std::size_t), stock, "listxattr");
  return stock(Redirected(path).path(), to, size);
}

WEFT_EXPORT ssize_t llistxattr(const char* path, char* to, std::size_t size) noexcept {
  WEFT_NEXT(ssize_t(const char*, char*, std::size_t), stock, "llistxattr");
  return stock(Redirected(path).path(), to, size);
}
