// Owns measuring what calls of the C library cost that are none of weft's business. Run it alone,
// and under `weft run --`.
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace {

constexpr int kRounds = 200'000;

double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

template <class Call>
double best(Call call) {
  double least = 1e18;
  for (int repeat = 0; repeat < 7; ++repeat) {
    const double begin = now();
    for (int i = 0; i < kRounds; ++i) {
      call();
    }
    least = std::min(least, (now() - begin) / kRounds);
  }
  return least;
}

}  // namespace

int main() {
  const int fd = open("/dev/null", O_RDWR);
  struct stat status {};
  std::printf("ns per call: write %.0f, fcntl %.0f, fstat %.0f, access %.0f, stat of /sys %.0f\n",
              best([&] { (void)!write(fd, "x", 1); }), best([&] { (void)fcntl(fd, F_GETFD); }),
              best([&] { (void)fstat(fd, &status); }),
              best([] { (void)access("/etc/passwd", R_OK); }),
              best([&] { (void)stat("/sys/kernel", &status); }));
  return 0;
}
