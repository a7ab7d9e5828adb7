// Owns measuring what calls of the C library cost that are none of weft's business: through the
// wrapper that a program under `weft run --` gets, and past it, in turns in one process.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace {

// In turns and by the median: a clock that changes its speed then changes both alike. An odd number
// has a middle.
constexpr int kRepeats = 31;
constexpr int kCalls = 2'000;

double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

template <class Call>
double time_of(Call&& call) {
  const double begin = now();
  for (int i = 0; i < kCalls; ++i) {
    call();
  }
  return (now() - begin) / kCalls;
}

double median(std::array<double, kRepeats> times) {
  std::sort(times.begin(), times.end());
  return times[kRepeats / 2];
}

// `call` is given the function to call.
template <class Function, class Call>
void compare(const char* name, const char* what, Call&& call) {
  // Libc itself, by its own handle; the program's own name leads to the library that was preloaded.
  static void* const libc = dlopen("libc.so.6", RTLD_NOW);
  auto* const stock = reinterpret_cast<Function*>(dlsym(libc, name));
  auto* const wrapped = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  std::array<double, kRepeats> with{};
  std::array<double, kRepeats> without{};
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto at = static_cast<std::size_t>(repeat);
    without[at] = time_of([&] { call(stock); });
    with[at] = time_of([&] { call(wrapped); });
  }
  std::printf("%-28s %8.0f %8.0f %8.2f%s\n", what, median(without), median(with),
              median(with) / median(without), stock == wrapped ? "  (not wrapped)" : "");
}

}  // namespace

int main() {
  const int fd = open("/dev/null", O_RDWR);
  const int folder = open("/etc", O_RDONLY | O_DIRECTORY);
  struct stat status {};
  char text[256];
  std::printf("%-28s %8s %8s %8s\n", "ns per call", "libc", "here", "ratio");
  compare<ssize_t(int, const void*, std::size_t)>("write", "write /dev/null",
                                                  [&](auto* f) { (void)!f(fd, "x", 1); });
  compare<int(int, int, ...)>("fcntl", "fcntl", [&](auto* f) { (void)f(fd, F_GETFD); });
  compare<int(int, struct stat*)>("fstat", "fstat", [&](auto* f) { (void)f(fd, &status); });
  compare<int(const char*, int)>("access", "access /etc/passwd",
                                 [](auto* f) { (void)f("/etc/passwd", R_OK); });
  compare<int(const char*, struct stat*)>("stat", "stat /etc/passwd",
                                          [&](auto* f) { (void)f("/etc/passwd", &status); });
  compare<int(const char*, struct stat*)>("stat", "stat /sys/kernel",
                                          [&](auto* f) { (void)f("/sys/kernel", &status); });
  compare<int(const char*, struct stat*)>("stat", "stat /dev/null",
                                          [&](auto* f) { (void)f("/dev/null", &status); });
  compare<int(const char*, struct stat*)>("stat", "stat of a relative path",
                                          [&](auto* f) { (void)f("no/such/file", &status); });
  compare<int(int, const char*, struct stat*, int)>(
      "fstatat", "fstatat from a folder", [&](auto* f) { (void)f(folder, "passwd", &status, 0); });
  compare<ssize_t(const char*, char*, std::size_t)>(
      "readlink", "readlink /proc/self/exe",
      [&](auto* f) { (void)f("/proc/self/exe", text, sizeof text); });
  compare<int(const char*, int, ...)>("open", "open and close /dev/null", [](auto* f) {
    const int opened = f("/dev/null", O_RDONLY);
    close(opened);
  });
  compare<int(int, int, int)>("socket", "socket and close", [](auto* f) {
    const int opened = f(AF_INET, SOCK_DGRAM, 0);
    close(opened);
  });
  compare<int(int)>("dup", "dup and close", [&](auto* f) { close(f(fd)); });
  return 0;
}
