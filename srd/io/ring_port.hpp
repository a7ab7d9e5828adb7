// Owns one end of a pair of rings: the mapped memory, its two directions, and the bell between both
// ends.
#pragma once

#include <cstddef>

#include "srd/base/result.hpp"
#include "srd/io/bell.hpp"
#include "srd/io/posix.hpp"
#include "srd/io/spsc_ring.hpp"

namespace weft::srd {

[[nodiscard]] constexpr std::size_t ring_pair_bytes(std::size_t capacity) {
  return 2 * (kRingHeaderBytes + capacity);
}

class RingPort {
 public:
  // New memory for a pair of rings, formatted. `capacity` is a power of two.
  [[nodiscard]] static Result<UniqueFd> create_memory(std::size_t capacity);
  // End 0 or 1 of the pair in `memfd`. A frame larger than max_frame coming in breaks the ring.
  [[nodiscard]] static Result<RingPort> open(int memfd, std::size_t capacity, int end,
                                             std::size_t max_frame, Bell bell);

  RingProducer& tx() { return tx_; }
  RingConsumer& rx() { return rx_; }
  [[nodiscard]] bool broken() const { return cut_off_ || tx_.broken() || rx_.broken(); }
  // The peer misuses something other than the rings.
  void cut_off() { cut_off_ = true; }
  // Tells when the peer has written into a ring that was declared asleep.
  [[nodiscard]] const Bell& bell() const { return bell_; }
  // After a burst of commits.
  void notify_peer() {
    if (tx_.must_ring()) {
      bell_.ring();
    }
  }
  // Makes a peer that does not look at its control socket do so.
  void raise_notice() {
    tx_.raise_notice();
    notify_peer();
  }

 private:
  Mapping memory_;
  RingProducer tx_;
  RingConsumer rx_;
  Bell bell_;
  bool cut_off_ = false;
};

}  // namespace weft::srd
