// Owns the wrapped calls that follow links: the program never learns where the emulated tree really
// lies.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "integration/preload/next.hpp"
#include "integration/preload/paths.hpp"

using weft::preload::hide_root;
using weft::preload::Redirected;
using weft::preload::redirected;

namespace {

// Whether these bytes of a link's target, all of it or as many as there was room for, may be those
// of a path in the tree.
bool may_be_hidden(const char* target, ssize_t length, std::size_t room) {
  const char* const root = weft::preload::tree_root();
  if (root == nullptr || length <= 0) {
    return false;
  }
  const auto size = static_cast<std::size_t>(length);
  std::size_t same = 0;
  while (same < size && root[same] != '\0' && root[same] == target[same]) {
    ++same;
  }
  return same == size ? size == room : root[same] == '\0';
}

// Such a target once more: of /proc/self/cwd, or of an open file. It is cut off where the room
// ends, so the part that the program sees has to be cut off again.
[[gnu::noinline]] ssize_t read_hidden(int folder, const char* link, char* to, std::size_t room,
                                      ssize_t length) {
  const int error = errno;
  weft::preload::PathLease space;
  const long whole =
      space.take() ? syscall(SYS_readlinkat, folder, link, space->whole, sizeof space->whole - 1)
                   : -1;
  errno = error;
  if (whole <= 0) {
    return length;
  }
  space->whole[whole] = '\0';
  const char* const shown = weft::preload::visible(space->whole);
  const std::size_t size = std::min(std::strlen(shown), room);
  std::memcpy(to, shown, size);
  return static_cast<ssize_t>(size);
}

// The link itself is asked about, so a last link stays. Targets within the tree are relative, and
// need no hiding; those of the kernel's own links do.
template <class Read>
ssize_t read_link(int folder, const char* path, char* to, std::size_t room, Read&& read) {
  return redirected(folder, path, weft::preload::LastLink::stays, [&](const Redirected& link) {
    const ssize_t length = read(link.path());
    return may_be_hidden(to, length, room) ? read_hidden(folder, link.path(), to, room, length)
                                           : length;
  });
}

}  // namespace

WEFT_EXPORT char* realpath(const char* path, char* resolved) noexcept {
  WEFT_NEXT(char*(const char*, char*), stock, "realpath");
  char* const result = redirected(path, [&](const char* to) { return stock(to, resolved); });
  hide_root(result);
  return result;
}

WEFT_EXPORT char* __realpath_chk(const char* path, char* resolved, std::size_t size) noexcept {
  WEFT_NEXT(char*(const char*, char*, std::size_t), stock, "__realpath_chk");
  char* const result = redirected(path, [&](const char* to) { return stock(to, resolved, size); });
  hide_root(result);
  return result;
}

WEFT_EXPORT char* canonicalize_file_name(const char* path) noexcept {
  WEFT_NEXT(char*(const char*), stock, "canonicalize_file_name");
  char* const result = redirected(path, [&](const char* to) { return stock(to); });
  hide_root(result);
  return result;
}

WEFT_EXPORT ssize_t readlink(const char* path, char* to, std::size_t size) noexcept {
  WEFT_NEXT(ssize_t(const char*, char*, std::size_t), stock, "readlink");
  return read_link(AT_FDCWD, path, to, size, [&](const char* of) { return stock(of, to, size); });
}

WEFT_EXPORT ssize_t __readlink_chk(const char* path, char* to, std::size_t size,
                                   std::size_t room) noexcept {
  WEFT_NEXT(ssize_t(const char*, char*, std::size_t, std::size_t), stock, "__readlink_chk");
  return read_link(AT_FDCWD, path, to, size,
                   [&](const char* of) { return stock(of, to, size, room); });
}

WEFT_EXPORT ssize_t readlinkat(int folder, const char* path, char* to, std::size_t size) noexcept {
  WEFT_NEXT(ssize_t(int, const char*, char*, std::size_t), stock, "readlinkat");
  return read_link(folder, path, to, size,
                   [&](const char* of) { return stock(folder, of, to, size); });
}

WEFT_EXPORT ssize_t __readlinkat_chk(int folder, const char* path, char* to, std::size_t size,
                                     std::size_t room) noexcept {
  WEFT_NEXT(ssize_t(int, const char*, char*, std::size_t, std::size_t), stock, "__readlinkat_chk");
  return read_link(folder, path, to, size,
                   [&](const char* of) { return stock(folder, of, to, size, room); });
}
