// Owns how a case tries its device: a queue pair that sends to itself.
#pragma once

#include "tests/conformance/storm/queue_pair.hpp"

namespace weft::conformance {

inline constexpr std::uint32_t kSlots = 4;
inline constexpr std::uint32_t kSize = 64;

// Sends to itself and takes what comes.
inline void talk_to_itself(QueuePair& queue, int messages = 1) {
  ibv_wc done{};
  for (int i = 0; i < messages; ++i) {
    queue.post_receive(0);
    demand(queue.post_send(0, 1, queue.number()), "no room");
    for (int missing = 2; missing > 0;) {
      if (queue.poll(done)) {
        demand(done.status == IBV_WC_SUCCESS, ibv_wc_status_str(done.status));
        --missing;
      }
    }
  }
}

}  // namespace weft::conformance
