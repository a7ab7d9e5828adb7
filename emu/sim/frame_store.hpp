// Owns the bytes of the frames that are on their way: headers, and payload only where it is real.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "srd/base/check.hpp"
#include "srd/net/machine.hpp"

namespace weft::sim {

// Frames live in blocks of a few sizes: a Head, then the header, then the payload if it is real. A
// block of the first size takes a line and a half of cache and holds the usual header; an unusually
// long acknowledgement takes one of the next; the last size holds real payload. A handle stays
// valid until release(), which must come once for each put() and copy(). Memory is never given
// back: released blocks serve later frames. A frame larger than all sizes aborts the program.
class FrameStore {
 public:
  // What the simulation has to remember of a frame while the fabric carries only its handle. The
  // size is a contract with kSizes: 16 bytes leave 80 for the header in the first size.
  struct Head {
    std::uint32_t from = 0;     // port
    std::uint32_t payload = 0;  // bytes
    std::uint16_t header = 0;   // bytes
    std::uint16_t path = 0;
    std::uint16_t wire = 0;  // bytes that the network counted
    std::uint8_t ecn = 0;
    std::uint8_t has_payload = 0;  // the payload's bytes follow the header
  };
  static_assert(sizeof(Head) == 16);

  // Copies the header, and the payload if wanted. Returns the frame's handle.
  [[nodiscard]] std::uint32_t put(const Head& head, const srd::TxPacket& packet, bool with_payload);
  // Another frame with the same content: the network has duplicated it.
  [[nodiscard]] std::uint32_t copy(std::uint32_t handle);
  void release(std::uint32_t handle) {
    Class& it = classes_[handle >> kClassShift];
    it.free.push_back(handle);
    --used_;
  }
  [[nodiscard]] const Head& head(std::uint32_t handle) const {
    return *reinterpret_cast<const Head*>(block(handle));
  }
  [[nodiscard]] std::byte* bytes(std::uint32_t handle) { return block(handle) + sizeof(Head); }
  void prefetch(std::uint32_t handle) const {
    const std::byte* at = block(handle);
    __builtin_prefetch(at);
    __builtin_prefetch(at + 64);
  }
  // Frames that have not been released.
  [[nodiscard]] std::uint64_t used() const { return used_; }

 private:
  // A handle has the index of its size in the two upper bits and the number of the block of that
  // size in the others, so block() needs no table. Blocks are allocated kPerChunk at a time and
  // never move, which keeps references valid while the store grows.
  static constexpr unsigned kClassShift = 30;
  static constexpr std::uint32_t kPerChunk = 1024;
  static constexpr std::size_t kSizes[4] = {96, 160, 544, 10240};

  struct Class {
    std::vector<std::unique_ptr<std::byte[]>> chunks;
    std::vector<std::uint32_t> free;
  };
  [[nodiscard]] std::byte* block(std::uint32_t handle) const {
    const std::uint32_t kind = handle >> kClassShift;
    const std::uint32_t index = handle & ((1U << kClassShift) - 1);
    return classes_[kind].chunks[index / kPerChunk].get() + index % kPerChunk * kSizes[kind];
  }
  [[nodiscard]] std::uint32_t allocate(std::uint32_t kind);

  Class classes_[4];
  std::uint64_t used_ = 0;
};

}  // namespace weft::sim
