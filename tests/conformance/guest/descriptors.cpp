// Owns the cases about descriptors: the program's, and ours among them.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/guest/own_queue.hpp"

namespace weft::conformance {
namespace {

template <class Count>
int count_descriptors(Count&& count) {
  int number = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    number += count(std::stoi(entry.path().filename().string())) ? 1 : 0;
  }
  return number;
}

}  // namespace

int close_all() {
  // As daemons do when they start. They know nothing of descriptors that belong to a library.
  void (*const ways[])() = {
      [] { closefrom(3); },
      [] { demand(close_range(3, ~0U, 0) == 0, "close_range fails"); },
      [] {
        for (int fd = 3; fd < 4096; ++fd) {
          close(fd);
        }
      },
  };
  for (const auto way : ways) {
    auto* const lost = new QueuePair(kSlots, kSize);  // its device file goes with the rest
    talk_to_itself(*lost);
    way();
    QueuePair again(kSlots, kSize);
    talk_to_itself(again);
  }
  return 0;
}

int failed_dup() {
  ibv_context* const context = open_first_device();
  const int fd = context->cmd_fd;
  demand(dup2(-1, fd) == -1 && errno == EBADF, "dup2() of nothing");
  demand(dup3(fd, fd, 0) == -1 && errno == EINVAL, "dup3() onto itself");
  demand(dup3(0, fd, ~O_CLOEXEC) == -1 && errno == EINVAL, "dup3() with odd flags");
  ibv_pd* const pd = ibv_alloc_pd(context);
  demand(pd != nullptr, "the device file is lost");
  const int copy = dup(fd);
  demand(dup2(0, copy) == copy, "dup2() over a copy");
  demand(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0, "cannot take it down");
  return 0;
}

int numbers() {
  // Descriptors of the library's own lie from 512 on; what the program opened is below.
  const auto low = [](int fd) { return fd < 512; };
  const int before = count_descriptors(low);
  QueuePair queue(kSlots, kSize);
  talk_to_itself(queue);
  // The device file and its asynchronous events.
  demand(count_descriptors(low) == before + 2, "ours are among the program's descriptors");
  int ours = -1;
  demand(count_descriptors([&](int fd) {
           ours = fd >= 512 ? fd : ours;
           return fd >= 512;
         }) > 0,
         "where are ours?");
  // As if they did not exist; only that nothing else may take their place.
  demand(close(ours) == -1 && errno == EBADF, "one of ours can be closed");
  demand(dup2(0, ours) == -1 && errno == EBUSY, "one of ours can be replaced");
  for (int fd = 512; fd <= ours; ++fd) {
    const auto is_open = [fd] { return syscall(SYS_fcntl, fd, F_GETFD) >= 0; };
    const bool before_range = is_open();
    const auto number = static_cast<unsigned>(fd);
    demand(close_range(number, number, 0) == 0 && close_range(number - 1, number, 0) == 0,
           "close_range");
    demand(is_open() == before_range, "one of ours ends a range, and is closed");
  }
  talk_to_itself(queue);
  return 0;
}

int channels() {
  ibv_context* const context = open_first_device();
  const auto all = [](int) { return true; };
  const int before = count_descriptors(all);
  ibv_comp_channel* made[100] = {};
  for (auto& channel : made) {
    channel = ibv_create_comp_channel(context);
    demand(channel != nullptr, "no channel");
  }
  for (auto* const channel : made) {
    demand(ibv_destroy_comp_channel(channel) == 0, "cannot close a channel");
  }
  demand(count_descriptors(all) == before, "closed channels leave descriptors behind");
  demand(ibv_close_device(context) == 0, "cannot close the device");
  return 0;
}

// The number of a device file that was closed without our knowledge goes to another file, whose
// bytes must not be taken for commands.
int past_us() {
  QueuePair queue(kSlots, kSize);
  const auto is_plain = [](int fd) {
    struct stat status {};
    return fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && write(fd, "x", 1) == 1;
  };
  const auto plain_file = [] { return open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600); };
  {
    const int copy = dup(queue.context()->cmd_fd);
    demand(fclose(fdopen(copy, "r")) == 0, "fclose()");
    const int next = plain_file();
    demand(next == copy && is_plain(next) && close(next) == 0, "after fclose()");
  }
  {
    const int copy = dup(queue.context()->cmd_fd);
    demand(syscall(SYS_close, copy) == 0, "a raw close()");
    const int next = plain_file();
    demand(next == copy && is_plain(next), "after a raw close()");
    const int again = dup(next);
    demand(is_plain(again) && close(again) == 0 && close(next) == 0, "its copy");
  }
  talk_to_itself(queue);
  return 0;
}

// A device takes the upper numbers below a small limit: all lower ones can still be the program's.
int few_numbers() {
  rlimit limit{};
  demand(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  QueuePair queue(kSlots, kSize);
  talk_to_itself(queue);
  const int most = static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 2, 500));
  for (int fd = queue.context()->async_fd + 1; fd < most; ++fd) {
    demand(dup2(0, fd) == fd && close(fd) == 0, "a number is taken");
  }
  talk_to_itself(queue);
  return 0;
}

}  // namespace weft::conformance
