// Owns the growth of the frame store and the copies into it.
#include "emu/sim/frame_store.hpp"

namespace weft::sim {

std::uint32_t FrameStore::allocate(std::uint32_t kind) {
  Class& it = classes_[kind];
  if (it.free.empty()) {
    const auto first = static_cast<std::uint32_t>(it.chunks.size()) * kPerChunk;
    it.chunks.push_back(std::make_unique_for_overwrite<std::byte[]>(kPerChunk * kSizes[kind]));
    // From the back, so that the first block of the chunk is used first.
    for (std::uint32_t i = kPerChunk; i-- > 0;) {
      it.free.push_back(kind << kClassShift | (first + i));
    }
  }
  const std::uint32_t handle = it.free.back();
  it.free.pop_back();
  ++used_;
  return handle;
}

std::uint32_t FrameStore::put(const Head& head, const srd::TxPacket& packet, bool with_payload) {
  const std::size_t size = sizeof(Head) + head.header + (with_payload ? head.payload : 0);
  std::uint32_t kind = 0;
  while (kSizes[kind] < size) {
    ++kind;
    WEFT_CHECK(kind < 4);
  }
  const std::uint32_t handle = allocate(kind);
  std::byte* to = block(handle);
  std::memcpy(to, &head, sizeof head);
  to += sizeof head;
  std::memcpy(to, packet.header.data(), head.header);
  if (with_payload) {
    to += head.header;
    for (const auto& piece : packet.payload) {
      if (!piece.empty()) {
        std::memcpy(to, piece.data(), piece.size());
        to += piece.size();
      }
    }
  }
  return handle;
}

std::uint32_t FrameStore::copy(std::uint32_t handle) {
  const std::uint32_t kind = handle >> kClassShift;
  const std::uint32_t twin = allocate(kind);
  std::memcpy(block(twin), block(handle), kSizes[kind]);
  return twin;
}

}  // namespace weft::sim
