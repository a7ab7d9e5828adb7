// Owns the receiving end of a connection: groups of buffers that were announced, and what arrived.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

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
//
// An eager message takes the oldest free buffer with its tag, after those before it. Until there is
// one, or until those before it are here, it is kept.
class ReceiveComm : public Comm {
 public:
  // `out` is null if there is no room: ask again.
  [[nodiscard]] Outcome post(Links& links, std::span<const Buffer> buffers, bool early,
                             Request*& out);
  struct Eager {
    std::uint32_t number = 0;
    std::int64_t tag = 0;
    std::span<const std::byte> bytes;
  };
  // False: the peer does what no sending end does.
  [[nodiscard]] bool on_eager(Links& links, const Eager& message);
  // A message is complete in its buffer. False: no buffer waits for it.
  [[nodiscard]] bool on_arrival(Links& links, Immediate immediate, std::uint32_t length);
  // The sender has closed its end, and what it sent is here.
  void desert();
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
    std::array<Buffer, kMaxGroup> buffers{};
  };
  struct Place {
    std::uint32_t sequence = 0;
    std::uint8_t sub = 0;
  };
  // An eager message that is kept.
  struct Parcel {
    bool valid = false;
    std::uint32_t number = 0;
    std::int64_t tag = 0;
    std::vector<std::byte> bytes;
  };

  [[nodiscard]] bool announce(Links& links, std::span<const Buffer> buffers);
  [[nodiscard]] Slot& slot(std::uint32_t sequence) { return slots_[sequence % Immediate::kSlots]; }
  [[nodiscard]] Parcel& parcel(std::uint32_t which) { return parcels_[which % kEagerWindow]; }
  [[nodiscard]] std::optional<Place> find(std::int64_t tag);
  [[nodiscard]] Parcel* find_parcel(std::int64_t tag);
  void keep(const Eager& message);
  void put(Links& links, Place place, const Eager& message);
  void unpack(Links& links, Place place, Parcel& kept);
  void fill(Links& links, Slot& one, unsigned sub, std::uint32_t length);
  void end_all(Outcome outcome);
  void end_pending(Outcome outcome);

  RequestPool<kMaxReceives> requests_;
  std::array<Slot, Immediate::kSlots> slots_{};
  std::uint32_t next_{kFirstSequence};    // sequence of the next group
  std::uint32_t oldest_{kFirstSequence};  // group that is not complete
  std::array<Parcel, kEagerWindow> parcels_;
  std::uint32_t kept_ = 0;               // of those
  std::uint32_t heard_{kFirstSequence};  // eager messages; all before this number are here
};

}  // namespace weft::nccl
