// Owns the wrapped ways to follow links: the program never learns where the emulated tree really
// lies.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "integration/preload/next.hpp"
#include "integration/preload/paths.hpp"

using weft::preload::hide_root;
using weft::preload::next;
using weft::preload::Redirected;

WEFT_EXPORT char* realpath(const char* path, char* resolved) noexcept {
  static auto* const stock = next<char*(const char*, char*)>("realpath");
  char* const result = stock(Redirected(path).path(), resolved);
  hide_root(result);
  return result;
}

WEFT_EXPORT char* __realpath_chk(const char* path, char* resolved, std::size_t size) noexcept {
  static auto* const stock = next<char*(const char*, char*, std::size_t)>("__realpath_chk");
  char* const result = stock(Redirected(path).path(), resolved, size);
  hide_root(result);
  return result;
}

WEFT_EXPORT char* canonicalize_file_name(const char* path) noexcept {
  static auto* const stock = next<char*(const char*)>("canonicalize_file_name");
  char* const result = stock(Redirected(path).path());
  hide_root(result);
  return result;
}

WEFT_EXPORT ssize_t readlink(const char* path, char* to, std::size_t size) noexcept {
  static auto* const stock = next<ssize_t(const char*, char*, std::size_t)>("readlink");
  return stock(Redirected(path).path(), to, size);
}

WEFT_EXPORT ssize_t __readlink_chk(const char* path, char* to, std::size_t size,
                                   std::size_t room) noexcept {
  static auto* const stock =
      next<ssize_t(const char*, char*, std::size_t, std::size_t)>("__readlink_chk");
  return stock(Redirected(path).path(), to, size, room);
}

WEFT_EXPORT ssize_t readlinkat(int folder, const char* path, char* to, std::size_t size) noexcept {
  static auto* const stock = next<ssize_t(int, const char*, char*, std::size_t)>("readlinkat");
  return stock(folder, Redirected(path).path(), to, size);
}

WEFT_EXPORT ssize_t __readlinkat_chk(int folder, const char* path, char* to, std::size_t size,
                                     std::size_t room) noexcept {
  static auto* const stock =
      next<ssize_t(int, const char*, char*, std::size_t, std::size_t)>("__readlinkat_chk");
  return stock(folder, Redirected(path).path(), to, size, room);
}
