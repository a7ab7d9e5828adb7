// Owns reading the links of a folder of device trees.
#include "integration/preload/any_host.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weft::preload {
namespace {

// Past our wrappers: they ask for the tree, which is just being chosen.
bool read_link(const char* path, char* to, std::size_t room) {
  const auto length = syscall(SYS_readlinkat, AT_FDCWD, path, to, room - 1);
  if (length <= 0) {
    return false;
  }
  to[length] = '\0';
  return true;
}

// The first number in what a link says.
unsigned long number_in(const char* link) {
  char text[PATH_MAX];
  if (!read_link(link, text, sizeof text)) {
    return 0;
  }
  const char* const digits = std::strpbrk(text, "0123456789");
  return digits == nullptr ? 0 : std::strtoul(digits, nullptr, 10);
}

}  // namespace

bool choose_tree(char* root, std::size_t room) {
  const char* const host = std::getenv("WEFT_HOST");
  const char* const folder = std::getenv("WEFT_DEVICES");
  if (host == nullptr || std::strcmp(host, kAnyHost) != 0 || folder == nullptr || *folder != '/') {
    return false;
  }
  char link[PATH_MAX];
  char tree[PATH_MAX];
  std::snprintf(link, sizeof link, "%s/count", folder);
  const unsigned long count = number_in(link);
  if (count == 0) {
    return false;
  }
  // The same for all processes of a container, and for no two containers that run. Containers take
  // several such numbers each, in steps that may have a factor in common with `count`.
  const std::uint64_t container = number_in("/proc/self/ns/mnt");
  const std::uint64_t mixed = container * 0x9E3779B97F4A7C15U >> 32U;
  std::snprintf(link, sizeof link, "%s/%lu", folder, static_cast<unsigned long>(mixed % count));
  if (!read_link(link, tree, sizeof tree)) {
    return false;
  }
  const char* const last = std::strrchr(folder, '/');
  const int length =
      std::snprintf(root, room, "%.*s/%s", static_cast<int>(last - folder), folder, tree);
  return length > 0 && static_cast<std::size_t>(length) < room;
}

std::string host_of_tree(const char* root) {
  const std::string path = root == nullptr ? "" : root;
  const std::size_t end = path.rfind('/');
  if (end == std::string::npos || end == 0) {
    return {};
  }
  const std::size_t begin = path.rfind('/', end - 1);
  return begin == std::string::npos ? std::string() : path.substr(begin + 1, end - begin - 1);
}

}  // namespace weft::preload
