// Owns one end of a pair of rings: the mapped memory, its two directions, and the bell between both
// ends.
//
//   memfd   | header 0 | area 0, `capacity` bytes | header 1 | area 1, `capacity` bytes |
//
// End 0 writes ring 0 and reads ring 1; end 1 the other way round. Both map the memory writable, so
// a port checks everything that it reads there (spsc_ring.hpp).
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

// Movable; the mapping and the bell go with it. Used by one thread at a time, in either direction.
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
  // Breaks the port for another reason than its rings: the peer misused the bell.
  void cut_off() { cut_off_ = true; }
  // Rung by the peer when it has written into a ring whose reader was declared asleep.
  [[nodiscard]] const Bell& bell() const { return bell_; }
  // Once after a burst of commits: rings only if the peer sleeps.
  void notify_peer() {
    if (tx_.must_ring()) {
      bell_.ring();
    }
  }
  // Makes the peer, which polls its rings only, read its control socket.
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
