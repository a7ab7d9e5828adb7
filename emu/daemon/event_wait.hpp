// Owns sleeping until a descriptor is ready, or for so many nanoseconds.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>

#include "srd/io/posix.hpp"

namespace weft::daemon {

// epoll_wait() counts in milliseconds, too coarse for a modelled network. epoll_pwait2() counts in
// nanoseconds, but not every kernel has it and not every sandbox allows it: without it a timerfd
// among the descriptors ends the sleep as exactly. Its event has the timer's number as data.fd,
// which the caller does not know and skips.
class EventWait {
 public:
  [[nodiscard]] bool open();
  // As EPOLL_CTL_ADD and EPOLL_CTL_DEL; event.data.fd is `fd`.
  [[nodiscard]] bool add(int fd, std::uint32_t events);
  void remove(int fd);
  // -1: without a limit of time. Returns how many events there are.
  [[nodiscard]] int wait(std::span<epoll_event> events, std::int64_t nanoseconds);

 private:
  [[nodiscard]] int wait_with_timer(std::span<epoll_event> events, std::int64_t nanoseconds);

  srd::UniqueFd epoll_;
  bool refused_ = false;  // epoll_pwait2()
  srd::UniqueFd timer_;   // made when it is needed first
};

}  // namespace weft::daemon
