// Owns the moment that a close gives to a thread that is about to wait for the next event.
#include "integration/preload/event_handler.hpp"

#include <time.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "emu/kernel/native.hpp"

namespace weft::preload {
namespace {

namespace native = kernel::native;

// Whether a thread of this process has or wants a core. One that sleeps is not about to call us.
bool is_running(pid_t thread) {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/self/task/%d/stat", thread);
  const int fd = native::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    // It has ended, unless there is no number left to look with. Then it may be running.
    return errno == EMFILE || errno == ENFILE;
  }
  std::array<char, 64> text;  // "number (name) state ...", and a name has 15 bytes at most
  const long size = native::read(fd, text.data(), text.size());
  native::close(fd);
  const std::string_view line(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  const std::size_t name_end = line.rfind(") ");
  return name_end != std::string_view::npos && line.substr(name_end + 2).starts_with('R');
}

}  // namespace

// On a busy machine a thread waits for the time slices of others, of 3 ms each: these are ten.
void await_event_handler(const kernel::CmFile& file) {
  constexpr std::chrono::milliseconds kPatience{30};
  constexpr timespec kStep{.tv_sec = 0, .tv_nsec = 200'000};
  const auto end = std::chrono::steady_clock::now() + kPatience;
  do {
    const pid_t handler = file.event_handler();
    if (handler == 0 || handler == native::thread_id() || !is_running(handler)) {
      return;
    }
    nanosleep(&kStep, nullptr);
  } while (std::chrono::steady_clock::now() < end);
}

}  // namespace weft::preload
