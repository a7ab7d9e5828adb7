// Owns the cases about descriptors: the program's, and ours among them.
#include <fcntl.h>
#include <sys/resource.h>

#include <cerrno>
#include <filesystem>
#include <memory>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/storm/queue_pair.hpp"

namespace weft::conformance {
namespace {

constexpr std::uint32_t kSlots = 4;
constexpr std::uint32_t kSize = 64;

void talk(QueuePair& queue) {
  ibv_wc done{};
  queue.post_receive(0);
  demand(queue.post_send(0, 1, queue.number()), "no room");
  for (int missing = 2; missing > 0;) {
    if (queue.poll(done)) {
      demand(done.status == IBV_WC_SUCCESS, ibv_wc_status_str(done.status));
      --missing;
    }
  }
}

template <class Count>
int count_descriptors(Count&& count) {
  int number = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    number += count(std::stoi(entry.path().filename().string())) ? 1 : 0;
  }
  return number;
}

ibv_context* open_first() {
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  demand(devices != nullptr && count > 0, "no device");
  ibv_context* const context = ibv_open_device(devices[0]);
  demand(context != nullptr, "cannot open the device");
  ibv_free_device_list(devices);
  return context;
}

}  // namespace

int close_all() {
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
    talk(*lost);
    way();
    QueuePair again(kSlots, kSize);
    talk(again);
  }
  return 0;
}

int failed_dup() {
  ibv_context* const context = open_first();
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
  const auto low = [](int fd) { return fd < 512; };
  const int before = count_descriptors(low);
  QueuePair queue(kSlots, kSize);
  talk(queue);
  // The device file and its asynchronous events.
  demand(count_descriptors(low) == before + 2, "ours are among the program's descriptors");
  int ours = -1;
  demand(count_descriptors([&](int fd) {
           ours = fd >= 512 ? fd : ours;
           return fd >= 512;
         }) > 0,
         "where are ours?");
  demand(close(ours) == -1 && errno == EBADF, "one of ours can be closed");
  demand(dup2(0, ours) == -1 && errno == EBUSY, "one of ours can be replaced");
  talk(queue);
  return 0;
}

int channels() {
  ibv_context* const context = open_first();
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

}  // namespace weft::conformance
