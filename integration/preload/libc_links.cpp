// Owns the wrapped calls that follow links: the program never learns where the emulated tree really
// lies.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "integration/preload/next.hpp"
#include "integration/preload/paths.hpp"

using weft::preload::hide_root;
using weft::preload::Next;
using weft::preload::Redirected;
using weft::preload::redirected;

namespace {
// The link itself is asked about, so a last link stays. Targets within the tree are relative, and
// need no hiding.
template <class Read>
ssize_t read_link(int folder, const char* path, Read&& read) {
  return redirected(folder, path, weft::preload::LastLink::stays,
                    [&](const Redirected& link) { return read(link.path()); });
}
}  // namespace

WEFT_EXPORT char* realpath(const char* path, char* resolved) noexcept {
  static constinit Next<char*(const char*, char*)> stock("realpath");
  char* const result = redirected(path, [&](const char* to) { return stock(to, resolved); });
  hide_root(result);
  return result;
}

WEFT_EXPORT char* __realpath_chk(const char* path, char* resolved, std::size_t size) noexcept {
  static constinit Next<char*(const char*, char*, std::size_t)> stock("__realpath_chk");
  char* const result = redirected(path, [&](const char* to) { return stock(to, resolved, size); });
  hide_root(result);
  return result;
}

WEFT_EXPORT char* canonicalize_file_name(const char* path) noexcept {
  static constinit Next<char*(const char*)> stock("canonicalize_file_name");
  char* const result = redirected(path, [&](const char* to) { return stock(to); });
  hide_root(result);
  return result;
}

WEFT_EXPORT ssize_t readlink(const char* path, char* to, std::size_t size) noexcept {
  static constinit Next<ssize_t(const char*, char*, std::size_t)> stock("readlink");
  return read_link(AT_FDCWD, path, [&](const char* of) { return stock(of, to, size); });
}

WEFT_EXPORT ssize_t __readlink_chk(const char* path, char* to, std::size_t size,
                                   std::size_t room) noexcept {
  static constinit Next<ssize_t(const char*, char*, std::size_t, std::size_t)> stock(
      "__readlink_chk");
  return read_link(AT_FDCWD, path, [&](const char* of) { return stock(of, to, size, room); });
}

WEFT_EXPORT ssize_t readlinkat(int folder, const char* path, char* to, std::size_t size) noexcept {
  static constinit Next<ssize_t(int, const char*, char*, std::size_t)> stock("readlinkat");
  return read_link(folder, path, [&](const char* of) { return stock(folder, of, to, size); });
}

WEFT_EXPORT ssize_t __readlinkat_chk(int folder, const char* path, char* to, std::size_t size,
                                     std::size_t room) noexcept {
  static constinit Next<ssize_t(int, const char*, char*, std::size_t, std::size_t)> stock(
      "__readlinkat_chk");
  return read_link(folder, path, [&](const char* of) { return stock(folder, of, to, size, room); });
}
