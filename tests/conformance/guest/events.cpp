// Owns the case that sleeps on a completion channel.
#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/guest/ranks.hpp"

namespace weft::conformance {

int event_latency() {
  constexpr std::uint32_t kSlots = 4;
  constexpr int kTurns = 500;
  QueuePair queue(kSlots, 64, QueuePair::Calls::hooked, QueuePair::Events::on);
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    queue.post_receive(slot);
  }
  const std::uint32_t peer = exchange("number", queue.number());
  const bool first = own_rank() == 0;
  std::vector<double> times;
  ibv_wc done{};
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto begin = std::chrono::steady_clock::now();
    // A turn of the second rank begins with the answer to the turn before, and ends with the next
    // message.
    int missing = first || turn > 0 ? 2 : 1;
    queue.arm();
    // So long that the device's thread has seen the arming, and looks away again.
    const auto later = begin + std::chrono::microseconds{first ? 100 : 0};
    while (std::chrono::steady_clock::now() < later) {
    }
    if (first || turn > 0) {
      demand(queue.post_send(0, 1000, peer), "no room");
    }
    while (missing > 0) {
      if (queue.poll(done)) {
        demand(done.status == IBV_WC_SUCCESS, ibv_wc_status_str(done.status));
        if ((done.opcode & IBV_WC_RECV) != 0) {
          queue.post_receive(done.wr_id);
        }
        --missing;
        continue;
      }
      queue.sleep_until_event();
      queue.arm();
    }
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  if (!first) {  // the answer to the last
    demand(queue.post_send(0, 1000, peer), "no room");
    while (!queue.poll(done)) {
    }
    return 0;
  }
  std::sort(times.begin(), times.end());
  std::printf("round trip, us: median %.1f, 90%% %.1f, 99%% %.1f, most %.1f\n",
              times[times.size() / 2], times[times.size() * 9 / 10], times[times.size() * 99 / 100],
              times.back());
  return 0;
}

}  // namespace weft::conformance
