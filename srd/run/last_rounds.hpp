// Owns how long a process that ends goes on driving its NIC.
//
// What came last was acknowledged, but an acknowledgement may be lost, and nobody repeats it for a
// process that is gone: the peer would wait for it until it gives up. So peers are asked whether
// they have heard, and those that have not are told again.
#pragma once

#include <chrono>
#include <cstddef>
#include <thread>

#include "srd/base/time.hpp"
#include "srd/run/clock.hpp"
#include "srd/run/host.hpp"

namespace weft::srd {

// Of a process. Tests have another one.
struct RealTime {
  [[nodiscard]] static TimePoint now() { return monotonic_now(); }
  static void sleep(Duration time) { std::this_thread::sleep_for(time); }
};

// M says in addition to what Host asks:
//   void take_leave(TimePoint now);  tells and asks those peers that may not have heard all
//   bool is_awaited() const;         there are such peers
template <class M, class Time = RealTime>
void make_last_rounds(Host<M>& host, Time&& time = {}) {
  // Where peers do not answer, with more to send than a round takes, or without the NIC. A process
  // whose end takes longer is noticed; the last words of thousands of connections take a tenth of
  // it, and the rest is for a busy machine and for a reader that is slow.
  constexpr std::chrono::milliseconds kMoment{100};
  constexpr std::chrono::microseconds kMaxBusy{500};  // with peers that only go on sending
  // Doubled each time: seven questions in all.
  constexpr std::chrono::milliseconds kFirstWait{1};
  const TimePoint begin = time.now();
  TimePoint now = begin;
  TimePoint ask_at = begin;
  Duration wait = kFirstWait;
  bool stays = true;
  const auto look = [&](M& machine, TimePoint round) {
    if (now >= ask_at) {
      machine.take_leave(round);
      ask_at = now + wait;
      wait *= 2;
    }
    stays = machine.is_awaited() || host.left_unsent();
  };
  for (; !host.held_here(); now = time.now()) {
    stays = true;  // where another thread has the NIC, nobody here knows what is left
    const std::size_t work = host.poll(look);
    if (now - begin >= (stays ? Duration{kMoment} : work == 0 ? Duration{} : Duration{kMaxBusy})) {
      return;
    }
    if (work == 0 && stays) {
      time.sleep(std::chrono::microseconds{200});  // another thread or process may need this core
    }
  }
}

}  // namespace weft::srd
