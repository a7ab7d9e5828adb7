// Owns sharing the modelled network's memory between NICs.
#include "emu/daemon/frames_inside.hpp"

#include <cstring>
#include <type_traits>

#include "emu/fabric/event.hpp"

namespace weft::daemon {
namespace {

static_assert(std::is_trivially_destructible_v<Stored>);

// Charged per frame beside its bytes: its record, and its events in the calendar, whose vectors may
// be half empty.
constexpr std::size_t kBookkeeping = sizeof(Stored) + 3 * sizeof(fabric::CalendarEvent);

}  // namespace

FramesInside::FramesInside(std::size_t max_frame, std::size_t budget, std::size_t ports)
    : budget_(budget), charged_to_(ports, 0), records_(sizeof(Stored)) {
  for (const std::size_t size : kClasses) {
    if (size < max_frame) {
      pools_.emplace_back(size);
    }
  }
  pools_.emplace_back(max_frame);
  for (std::size_t size_class = 0; size_class < pools_.size(); ++size_class) {
    block_bytes_[size_class] = pools_[size_class].block_bytes();
    charges_[size_class] = block_bytes_[size_class] + kBookkeeping;
  }
}

bool FramesInside::keep(Stored& stored, std::span<const std::byte> frame) {
  BlockPool& pool = pools_[stored.size_class];
  stored.block = pool.allocate();
  if (stored.block == kNone) {
    return false;
  }
  stored.bytes = pool.at(stored.block);
  std::memcpy(stored.bytes, frame.data(), frame.size());
  return true;
}

std::size_t FramesInside::memory() const {
  std::size_t sum = records_.memory();
  for (const BlockPool& pool : pools_) {
    sum += pool.memory();
  }
  return sum;
}

}  // namespace weft::daemon
