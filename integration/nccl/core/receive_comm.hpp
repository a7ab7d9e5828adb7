// Owns the receiving end of a connection: groups of buffers that were announced, and what arrived.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "integration/nccl/core/links.hpp"

namespace weft::nccl {

// One place for one message, as NCCL posts it; lent until the request has ended, or longer if it
// ends early.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t size = 0;
  std::int64_t tag = 0;
  const CommRegion* region = nullptr;
};

// Each receive is a group of buffers with a number in sequence, and takes one of 64 slots until all
// its messages are here. A receive whose completion may be told early ends when it is announced;
// its slot stays taken all the same, so the sender is never offered more than it has room for.
class ReceiveComm : public Comm {
 public:
  // `out` is null if there is no room: ask again.
  [[nodiscard]] Outcome post(Links& links, std::span<const Buffer> buffers, bool early,
                             Request*& out);
  // A message is complete in its buffer. False: no buffer waits for it.
  [[nodiscard]] bool on_arrival(Links& links, Immediate immediate, std::uint32_t length);
  void fail(Outcome outcome);
  // The memory of a region goes: receives that wait for it fail.
  void revoke(const CommRegion* region);

 private:
  static constexpr std::size_t kMaxReceives = 128;
  static constexpr std::uint16_t kTold = 0xFFFF;  // no request: its end was told early

  // What a group of buffers waits for. `missing` loses a bit with each message; at zero the slot is
  // free, and the request, if it was not told early, ends.
  struct Slot {
    bool taken = false;
    std::uint8_t missing = 0;  // a bit for each buffer
    std::uint16_t request = kTold;
    std::uint32_t sequence = 0;
    std::array<std::uint32_t, kMaxGroup> sizes{};  // of the buffers
    std::array<const CommRegion*, kMaxGroup> regions{};
  };

  [[nodiscard]] bool announce(Links& links, std::span<const Buffer> buffers);

  RequestPool<kMaxReceives> requests_;
  std::array<Slot, Immediate::kSlots> slots_{};
  std::uint32_t next_ = 0;  // sequence
  // The oldest group that is not complete: only for counting what was overtaken.
  std::uint32_t oldest_ = 0;
};

}  // namespace weft::nccl
