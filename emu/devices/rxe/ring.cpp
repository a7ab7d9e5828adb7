// Owns the geometry and the indices of shared rings.
//
// A ring is a header with two indices, each moved by one side, and a power of two of elements, each
// a power of two of bytes and a cache line at least. Both numbers are in the header, for the
// library; the device computes with its own copies, because the application may write there.
#include "emu/devices/rxe/ring.hpp"

#include <algorithm>
#include <atomic>
#include <bit>

namespace weft::devices::rxe {
namespace {

// One place stays empty: equal indices mean an empty ring.
std::uint32_t slots_for(std::uint32_t entries) { return std::bit_ceil(entries + 1); }

std::uint32_t shift_for(std::size_t element) {
  constexpr std::size_t kCacheLine = 64;
  return static_cast<std::uint32_t>(std::countr_zero(std::bit_ceil(std::max(element, kCacheLine))));
}

}  // namespace

Ring::Ring(kernel::QueueMemory& memory, Ours ours, std::uint32_t entries, std::size_t element)
    : memory_(memory),
      ours_(ours),
      mask_(slots_for(entries) - 1),
      shift_(shift_for(element)),
      region_(memory.allocate(sizeof(RingHeader) + (std::size_t{slots_for(entries)} << shift_))) {
  if (valid()) {
    header().log2_element_size = shift_;
    header().index_mask = mask_;
  }
}

MapInfo Ring::map_info() const {
  return {region_.key,
          static_cast<std::uint32_t>(sizeof(RingHeader) + ((std::size_t{mask_} + 1) << shift_)), 0};
}

std::uint32_t& Ring::ours() const {
  return ours_ == Ours::producer ? header().producer : header().consumer;
}
std::uint32_t& Ring::theirs() const {
  return ours_ == Ours::producer ? header().consumer : header().producer;
}

std::uint32_t Ring::size() const {
  // Acquire: what the application wrote into the entries before it moved its index is visible. The
  // mask makes a difference out of any value that it may have written.
  const std::uint32_t other = std::atomic_ref(theirs()).load(std::memory_order_acquire);
  return (ours_ == Ours::producer ? index_ - other : other - index_) & mask_;
}

std::byte* Ring::at(std::uint32_t ahead) const {
  return region_.data + sizeof(RingHeader) + (std::size_t{(index_ + ahead) & mask_} << shift_);
}

void Ring::advance(std::uint32_t count) {
  // From our own index, never from the shared word.
  index_ = (index_ + count) & mask_;
  // Release: the entries come before the index that shows them.
  std::atomic_ref(ours()).store(index_, std::memory_order_release);
}

}  // namespace weft::devices::rxe
