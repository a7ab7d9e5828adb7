// Owns the prefixes of the emulated part of the file system, and the redirection of paths.
//
// Every open(), stat() and the like of the program comes through here, so the order is: cheap tests
// that let nearly all paths go (the first letter, a few first words); then is_emulated() on the
// text; only for paths with "..", and for those that the kernel did not find, a walk with system
// calls.
#include "integration/preload/paths.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>
#include <system_error>

#include "emu/devices/counter_files.hpp"
#include "emu/devices/registry.hpp"
#include "integration/preload/any_host.hpp"
#include "integration/preload/fd_table.hpp"
#include "integration/preload/path_walk.hpp"
#include "srd/base/lent_memory.hpp"
#include "srd/io/posix.hpp"

namespace weft::preload {
namespace {

// Of every device; those of one kind are its personality's. A path may end after a prefix, or go
// on; no real device has a name that begins like these.
const char* const kPrefixes[] = {
    "/sys/class/infiniband",  // also infiniband_verbs, _mad, _ucma
    "/dev/infiniband",
    "/sys/class/misc/rdma_cm",
};
constexpr char kUverbs[] = "/dev/infiniband/uverbs";
constexpr char kUmad[] = "/dev/infiniband/umad";
constexpr char kConnections[] = "/dev/infiniband/rdma_cm";

bool begins(const char* path, const char* prefix) {
  return std::strncmp(path, prefix, std::strlen(prefix)) == 0;
}

// The same path without doubled slashes and "." steps. False: it is too long.
bool simplify(const char* path, char* to, std::size_t room) {
  std::size_t length = 0;
  while (*path != '\0') {
    while (*path == '/') {
      ++path;
    }
    const std::size_t step = std::strcspn(path, "/");
    if (step == 0) {
      break;
    }
    if (step != 1 || path[0] != '.') {
      if (length + step + 2 > room) {
        return false;
      }
      to[length++] = '/';
      std::memcpy(to + length, path, step);
      length += step;
    }
    path += step;
  }
  to[length] = '\0';
  return length > 0;
}

// As the kernel writes it: without a sign or leading zeros. -1: it is none.
int nic_number(std::string_view digits) {
  int number = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool whole = error == std::errc{} && end == digits.data() + digits.size();
  const bool plain = whole && digits[0] != '-' && (digits[0] != '0' || digits.size() == 1);
  return plain && number < FdTable::kMaxNics ? number : -1;
}

int device_number(const char* path) {
  if (begins(path, kUverbs)) {
    return nic_number(path + sizeof kUverbs - 1);
  }
  if (begins(path, kUmad)) {
    const int nic = nic_number(path + sizeof kUmad - 1);
    return nic < 0 ? -1 : FdTable::kDatagrams + nic;
  }
  return std::strcmp(path, kConnections) == 0 ? FdTable::kConnections : -1;
}

// Whether the path has a ".." step: where that leads cannot be told from the text (path_walk.cpp).
bool has_step_back(const char* path) {
  for (const char* at = path; (at = std::strstr(at, "..")) != nullptr; at += 2) {
    if ((at == path || at[-1] == '/') && (at[2] == '/' || at[2] == '\0')) {
      return true;
    }
  }
  return false;
}

// Asks the kernel: rt_sigprocmask() reads eight bytes from the address, and then fails with EINVAL
// for an unknown `how`, or with EFAULT if it could not read them. It changes nothing.
bool kernel_can_read(std::uintptr_t address) {
  constexpr int kNoSuchChange = -1;
  constexpr std::uintptr_t kBytes = 8;
  const int before = errno;
  const bool bad =
      syscall(SYS_rt_sigprocmask, kNoSuchChange, address & ~(kBytes - 1), nullptr, kBytes) != 0 &&
      errno == EFAULT;
  errno = before;
  return !bad;
}

constexpr std::uintptr_t kPage = 4096;

// Paths come from few pages, and asking costs a fifth of a stat(): so a page that was readable once
// is assumed to be still readable.
bool is_readable_page(std::uintptr_t address) {
  static constinit std::atomic<std::uintptr_t> readable[64]{};
  const std::uintptr_t page = address / kPage;
  std::atomic<std::uintptr_t>& known = readable[page % std::size(readable)];
  if (known.load(std::memory_order_relaxed) == page) [[likely]] {
    return true;
  }
  if (!kernel_can_read(address)) {
    return false;
  }
  known.store(page, std::memory_order_relaxed);
  return true;
}

// Until the first device is opened, our fault handlers are not installed: check page by page.
bool is_readable_by_pages(const char* path) {
  std::size_t length = 0;
  while (length < PATH_MAX) {
    const auto address = reinterpret_cast<std::uintptr_t>(path + length);
    const std::size_t to_next = kPage - address % kPage;
    if (!is_readable_page(address)) {
      return false;
    }
    const std::size_t more = strnlen(path + length, to_next);
    if (more < to_next) {
      return length + more < PATH_MAX;
    }
    length += more;
  }
  return false;
}

// A path that is not readable is passed on as it is: the kernel answers with EFAULT.
bool is_readable(const char* path) {
  constexpr std::uintptr_t kMinAddress = 4096;
  constexpr std::uintptr_t kMaxAddress = std::uintptr_t{1} << 47;
  const auto address = reinterpret_cast<std::uintptr_t>(path);
  if (address < kMinAddress || address >= kMaxAddress) {
    return false;
  }
  if (lent_memory.touch == nullptr) {
    return is_readable_by_pages(path);
  }
  std::size_t length = 0;
  return touch_lent(path, PATH_MAX, [&] { length = strnlen(path, PATH_MAX); }) && length < PATH_MAX;
}

}  // namespace

bool is_emulated(const char* path) {
  const auto is_beginning = [path](const char* prefix) { return begins(path, prefix); };
  if (std::any_of(std::begin(kPrefixes), std::end(kPrefixes), is_beginning)) {
    return true;
  }
  if (!begins(path, "/sys/")) {
    return false;
  }
  for (const devices::Personality* const kind : devices::all_kinds()) {
    const auto prefixes = kind->path_prefixes();
    if (std::any_of(prefixes.begin(), prefixes.end(), is_beginning)) {
      return true;
    }
  }
  return false;
}

const char* tree_root() {
  // Read once: programs that clean their environment keep the devices that they have. Without
  // malloc(), which may be the caller.
  enum class State : std::uint8_t { unknown, filling, none, known };
  static constinit char root[PATH_MAX];
  static constinit std::atomic<State> state{State::unknown};
  State now = state.load(std::memory_order_acquire);
  if (now == State::known) [[likely]] {
    return root;
  }
  if (now == State::none) {
    return nullptr;
  }
  const char* const value = std::getenv("WEFT_DEVICES");
  const bool good = value != nullptr && *value == '/' && std::strlen(value) < sizeof root;
  if (!good) {
    state.store(State::none, std::memory_order_release);
    return nullptr;
  }
  if (state.compare_exchange_strong(now, State::filling, std::memory_order_acquire)) {
    if (!choose_tree(root, sizeof root)) {
      std::memcpy(root, value, std::strlen(value) + 1);
    }
    state.store(State::known, std::memory_order_release);
    return root;
  }
  return now == State::known ? root : value;  // another thread is just copying it
}

namespace {

// In nearly every program this runs before main(), and so before there are threads.
[[gnu::constructor]] void remember_root() { (void)tree_root(); }

// The names of a kind's domain and driver: efa, efa0:.
bool begins_with_kind(const char* path) {
  const auto kinds = devices::all_kinds();
  return std::any_of(kinds.begin(), kinds.end(), [path](const devices::Personality* kind) {
    const std::string_view name = kind->kind();
    return std::strncmp(path, name.data(), name.size()) == 0;
  });
}

// A relative path can only lead into the emulated tree if its first step is one of those on the way
// there. Nearly all paths are let go here.
bool may_lead_here(const char* path) {
  while (path[0] == '.' && path[1] == '/') {
    path += 2;
  }
  switch (path[0]) {
    case '.':
      return path[1] == '.';
    case 'i':
      return begins(path, "infiniband") || has_step_back(path);
    case 'u':
      return begins(path, "uverbs") || begins(path, "umad") || has_step_back(path);
    case 'm':
      return begins(path, "misc/") || has_step_back(path);
    case 'r':
      return begins(path, "rdma_cm") || begins_with_kind(path) || has_step_back(path);
    case 'c':
      return begins(path, "class/") || has_step_back(path);
    case 's':
      return begins(path, "sys/") || has_step_back(path);
    case 'd':
      return begins(path, "dev/") || begins(path, "devices/") || begins(path, "drivers/") ||
             has_step_back(path);
    case 'b':
      return begins(path, "bus/") || has_step_back(path);
    case 'p':
      return begins(path, "pci") || has_step_back(path);  // pci/, pciefa0:
    default:
      return begins_with_kind(path) || has_step_back(path);
  }
}

// The absolute form of a relative path, as the program sees it. False: unknown, or too long.
bool make_absolute(int folder, const char* path, char (&to)[PATH_MAX]) {
  constexpr std::size_t room = sizeof to;
  ssize_t length = 0;
  if (folder == AT_FDCWD) {
    length = syscall(SYS_getcwd, to, room) - 1;  // counts the end of the string
  } else {
    char link[32];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    length = syscall(SYS_readlinkat, AT_FDCWD, link, to, room - 1);
  }
  if (length <= 0 || to[0] != '/') {
    return false;
  }
  to[length] = '\0';
  hide_root(to);
  const std::size_t head = std::strlen(to);
  const std::size_t tail = std::strlen(path);
  if (head + tail + 2 > room) {
    return false;
  }
  to[head] = '/';
  std::memcpy(to + head + 1, path, tail + 1);
  return true;
}

// For a path that the kernel did not find: whether it contains a dangling link, which may lead into
// the emulated tree, or just a name that does not exist. Tries from the end, since nearly always
// the last folder exists.
bool ends_at_a_link(int folder, const char* path, LastLink last, char (&part)[PATH_MAX]) {
  std::memcpy(part, path, std::strlen(path) + 1);
  struct stat status {};
  while (syscall(SYS_newfstatat, folder, part, &status, AT_SYMLINK_NOFOLLOW) != 0) {
    last = LastLink::followed;
    char* const step = std::strrchr(part, '/');
    if (step == nullptr || step == part) {
      return false;
    }
    *step = '\0';
  }
  return S_ISLNK(status.st_mode) && last == LastLink::followed &&
         syscall(SYS_faccessat, folder, part, F_OK) != 0;
}

}  // namespace

Redirected::Redirected(int folder, const char* path) : path_(path) {
  if (tree_root() == nullptr || !is_readable(path) || path[0] == '\0') {
    return;
  }
  may_follow_ = true;
  // All paths that do not begin with "/s", "/d", "//" or "/." are let go here.
  if (path[0] == '/') {
    if (path[1] == 's' || path[1] == 'd' || path[1] == '/' || path[1] == '.') {
      redirect(path);
    }
  } else if (may_lead_here(path)) {
    redirect_relative(folder, path);
  }
}

[[gnu::noinline]] void Redirected::redirect_relative(int folder, const char* path) {
  if (space_.take() && make_absolute(folder, path, space_->whole)) {
    redirect(space_->whole);
  }
}

bool Redirected::follow_links(int folder, LastLink last) {
  const char* const path = path_;
  const bool led_here = space_.has_taken() && path == space_->result;
  const int before = errno;
  if (may_follow_ && !led_here && space_.take() &&
      ends_at_a_link(folder, path, last, space_->part) &&
      (path[0] == '/' || make_absolute(folder, path, space_->whole))) {
    redirect_walked(tree_root(), path[0] == '/' ? path : space_->whole, last);
  }
  errno = before;
  return path_ != path;
}

void Redirected::redirect(const char* path) {
  const char* const root = tree_root();
  if (has_step_back(path)) {
    redirect_walked(root, path, LastLink::stays);
    return;
  }
  if (!is_emulated(path)) {
    const bool odd = std::strstr(path, "//") != nullptr || std::strstr(path, "/.") != nullptr;
    if (!odd || !space_.take() || !simplify(path, space_->part, sizeof space_->part) ||
        !is_emulated(space_->part)) {
      return;
    }
    path = space_->part;
  }
  lead_to(root, path);
}

[[gnu::noinline]] void Redirected::redirect_walked(const char* root, const char* path,
                                                   LastLink last) {
  if (!space_.take() || !walk_path(root, path, last, *space_)) {
    return;
  }
  const char* const walked = space_->walked;
  if (is_emulated(walked)) {
    lead_to(root, walked);
  } else {  // the way leads through the tree and out again, which the kernel could not follow
    std::memcpy(space_->result, walked, std::strlen(walked) + 1);
    path_ = space_->result;
  }
}

void Redirected::lead_to(const char* root, const char* path) {
  const std::size_t head = std::strlen(root);
  const std::size_t tail = std::strlen(path);
  if (!space_.take() || head + tail >= sizeof space_->result) {
    return;
  }
  char* const result = space_->result;
  std::memcpy(result, root, head);
  std::memcpy(result + head, path, tail + 1);
  path_ = result;
  device_ = device_number(path);
  if (std::strstr(path, "counters") != nullptr) {
    const srd::Uncancellable here;  // stat() and its relatives are no points of cancellation
    devices::refresh_counter_files(root, result);
  }
}

const char* visible(const char* path) {
  const char* const root = tree_root();
  if (root == nullptr || path == nullptr || !begins(path, root)) {
    return path;
  }
  const char* const below = path + std::strlen(root);
  return *below == '/' ? below : path;
}

void hide_root(char* path) {
  if (const char* const shown = visible(path); shown != path) {
    std::memmove(path, shown, std::strlen(shown) + 1);
  }
}

}  // namespace weft::preload
