// Owns how long a process that ends goes on driving its NIC.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>

#include "srd/base/time.hpp"
#include "srd/run/clock.hpp"
#include "srd/run/host.hpp"

namespace weft::devices {

// Of a process. Tests have another one.
struct RealTime {
  [[nodiscard]] static TimePoint now() { return srd::monotonic_now(); }
  static void sleep(Duration time) { std::this_thread::sleep_for(time); }
};

// D is a device as DeviceRunner wants it, and says in addition:
//   bool network_is_perfect() const;  nothing was lost or reordered, as far as this process saw
//   Duration longest_owed() const;    how long an acknowledgement may still be owed to a peer
template <class D, class Time = RealTime>
void make_last_rounds(srd::Host<D>& host, Time&& time = {}) {
  // In a network that loses packets, with more to send than a round takes, or without the NIC. A
  // process whose end takes longer is noticed; the last words of thousands of connections take a
  // tenth of it, and the rest is for a busy machine and for a reader that is slow.
  constexpr std::chrono::milliseconds kMoment{100};
  constexpr std::chrono::microseconds kMaxOwed{500};
  bool stays = true;
  Duration owed = kMaxOwed;
  const auto look = [&](D& device, TimePoint /*now*/) {
    stays = !device.network_is_perfect() || host.left_unsent();
    owed = std::min<Duration>(kMaxOwed, device.longest_owed());
  };
  const TimePoint begin = time.now();
  for (TimePoint now = begin; !host.held_here(); now = time.now()) {
    stays = true;  // where another thread has the NIC, nobody here knows what is left
    const std::size_t work = host.poll(look);
    if (now - begin >= (stays ? Duration{kMoment} : work == 0 ? owed : Duration{kMaxOwed})) {
      return;
    }
    if (work == 0 && stays) {
      time.sleep(std::chrono::microseconds{200});  // another thread or process may need this core
    }
  }
}

}  // namespace weft::devices
