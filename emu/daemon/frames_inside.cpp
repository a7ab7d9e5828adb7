// Owns sharing the modelled network's memory between NICs.
#include "emu/daemon/frames_inside.hpp"

#include <cstring>
#include <new>
#include <type_traits>

#include "emu/fabric/event.hpp"
#include "srd/base/check.hpp"

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
  }
}

std::size_t FramesInside::charge_of(std::uint8_t size_class) const {
  return block_bytes_[size_class] + kBookkeeping;
}

std::uint32_t FramesInside::add(fabric::PortId from, std::size_t size) {
  WEFT_CHECK(size <= pools_.back().block_bytes());  // guaranteed by ports and rings
  const std::uint8_t size_class = class_of(size);
  const std::size_t charge = charge_of(size_class);
  if (charged_ + charge > budget_ || charged_to_[from] + charge > budget_ - charged_) {
    ++refused_;
    return kNone;
  }
  const std::uint32_t handle = records_.allocate();
  if (handle == kNone) {
    ++refused_;
    return kNone;
  }
  charged_ += charge;
  charged_to_[from] += charge;
  Stored* stored = new (records_.at(handle)) Stored;
  stored->size = static_cast<std::uint32_t>(size);
  stored->size_class = size_class;
  stored->from = from;
  return handle;
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

void FramesInside::remove(std::uint32_t handle, const Stored& stored) {
  if (stored.block != kNone) {
    pools_[stored.size_class].release(stored.block);
  }
  const std::size_t charge = charge_of(stored.size_class);
  charged_ -= charge;
  charged_to_[stored.from] -= charge;
  records_.release(handle);
}

std::size_t FramesInside::memory() const {
  std::size_t sum = records_.memory();
  for (const BlockPool& pool : pools_) {
    sum += pool.memory();
  }
  return sum;
}

}  // namespace weft::daemon
