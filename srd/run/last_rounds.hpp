// Owns how long a process that ends goes on driving its NIC.
//
// What came last was acknowledged, but an acknowledgement may be lost, and nobody repeats it for a
// process that is gone: the peer would wait for it until it gives up. So peers are asked whether
// they have heard, and those that have not are told again.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include "srd/base/time.hpp"
#include "srd/run/clock.hpp"
#include "srd/run/host.hpp"

namespace weft::srd {

// Of a process. Tests have another one.
struct RealTime {
  [[nodiscard]] static TimePoint now() { return monotonic_now(); }
  static void sleep(Duration time) { std::this_thread::sleep_for(time); }
};

// A process whose end takes longer is noticed. The last words of thousands of connections take a
// tenth of it, and the rest is for a busy machine, a reader that is slow, and peers that do not
// answer.
inline constexpr Duration kLongestEnd = std::chrono::milliseconds{100};

// M says in addition to what Host asks:
//   void take_leave(TimePoint now, Leave how);  tells and asks peers
//   bool is_awaited() const;                    some may not have heard all
//   void stop_waiting();                        those that do not answer count as gone
// False: some did not answer.
template <class M, class Time = RealTime>
bool make_last_rounds(Host<M>& host, Duration longest = kLongestEnd, Time&& time = {}) {
  constexpr std::chrono::microseconds kMaxBusy{500};  // with peers that only go on sending
  // Doubled each time: seven questions in all.
  constexpr std::chrono::milliseconds kFirstWait{1};
  const TimePoint begin = time.now();
  TimePoint now = begin;
  TimePoint ask_at = begin;
  Duration wait = kFirstWait;
  Leave how = Leave::begin;
  bool stays = true;
  bool all_heard = true;
  const auto look = [&](M& machine, TimePoint round) {
    if (now >= ask_at) {
      machine.take_leave(round, std::exchange(how, Leave::ask_again));
      ask_at = now + wait;
      wait *= 2;
    }
    if (now - begin >= longest) {
      all_heard = all_heard && !machine.is_awaited();
      machine.stop_waiting();
    }
    stays = machine.is_awaited() || host.left_unsent();
  };
  if (host.held_here()) {
    return true;
  }
  for (;; now = time.now()) {
    stays = true;  // where another thread has the NIC, nobody here knows what is left
    const std::size_t work = host.poll(look);
    if (now - begin >= (stays ? longest : work == 0 ? Duration{} : Duration{kMaxBusy})) {
      break;
    }
    if (work == 0 && stays) {
      time.sleep(std::chrono::microseconds{200});  // another thread or process may need this core
    }
  }
  (void)host.poll([](M& machine, TimePoint round) { machine.take_leave(round, Leave::end); });
  return all_heard;
}

}  // namespace weft::srd
