// Owns the system calls of sleeping, and their replacement on older kernels.
#include "emu/daemon/event_wait.hpp"

#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace weft::daemon {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kMaxMilliseconds = INT32_MAX;

timespec timespec_of(std::int64_t nanoseconds) {
  return {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
}

}  // namespace

bool EventWait::open() {
  epoll_ = srd::UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  return static_cast<bool>(epoll_);
}

bool EventWait::add(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void EventWait::remove(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

int EventWait::wait(std::span<epoll_event> events, std::int64_t nanoseconds) {
  if (!refused_) {
    const timespec timeout = timespec_of(nanoseconds);
    const int count = ::epoll_pwait2(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                     nanoseconds < 0 ? nullptr : &timeout, nullptr);
    refused_ = count < 0 && errno != EINTR;
    if (!refused_) {
      return std::max(count, 0);
    }
  }
  return wait_with_timer(events, nanoseconds);
}

int EventWait::wait_with_timer(std::span<epoll_event> events, std::int64_t nanoseconds) {
  if (!timer_) {
    timer_ = srd::UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (timer_ && !add(timer_.get(), EPOLLIN | EPOLLET)) {
      timer_.reset();
    }
  }
  // A time of zero would stop the timer instead.
  const itimerspec once{{0, 0}, timespec_of(std::max<std::int64_t>(nanoseconds, 0))};
  const bool timed = timer_ && ::timerfd_settime(timer_.get(), 0, &once, nullptr) == 0;
  const std::int64_t rounded_up =
      std::min((nanoseconds + kMillisecond - 1) / kMillisecond, kMaxMilliseconds);
  const bool for_ever = nanoseconds < 0 || (timed && nanoseconds > 0);
  return std::max(::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                               for_ever ? -1 : static_cast<int>(rounded_up)),
                  0);
}

}  // namespace weft::daemon
