// Owns the painting and checking of predictable memory.
#include "emu/swarm/canvas.hpp"

#include <algorithm>
#include <cstring>

namespace weft::swarm {

void paint(std::span<std::byte> bytes, std::uint64_t key, std::uint64_t at) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = content(key, at + i);
  }
}

bool is_painted(std::span<const std::byte> bytes, std::uint64_t key, std::uint64_t at) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != content(key, at + i)) {
      return false;
    }
  }
  return true;
}

bool is_partly_painted(std::span<const std::byte> bytes, std::uint64_t key, std::uint64_t at) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != kBlank && bytes[i] != content(key, at + i)) {
      return false;
    }
  }
  return true;
}

// The first byte is right, and each byte equals its neighbour.
bool is_all(std::span<const std::byte> bytes, std::byte value) {
  return bytes.empty() ||
         (bytes[0] == value && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

GuardedBuffer::GuardedBuffer(std::size_t size)
    : memory_(new std::byte[size + 2 * kMargin]), size_(size) {
  std::memset(memory_.get(), static_cast<int>(kBlank), size + 2 * kMargin);
}

bool GuardedBuffer::margins_intact() const {
  return is_all({memory_.get(), kMargin}, kBlank) &&
         is_all({memory_.get() + kMargin + size_, kMargin}, kBlank);
}

void GuardedBuffer::scribble() { std::fill_n(memory_.get(), size_ + 2 * kMargin, kScribble); }

bool GuardedBuffer::still_scribbled() const {
  return is_all({memory_.get(), size_ + 2 * kMargin}, kScribble);
}

std::uint64_t SlotMap::take(std::uint64_t length, std::uint64_t key) {
  if (next_ + length + kEndReserve > size_) {
    return kFull;
  }
  const std::uint64_t offset = next_;
  // Eight blank bytes lie between two places.
  next_ += length + 8;
  slots_.push_back({.offset = offset, .length = length, .key = key});
  return offset;
}

std::uint64_t SlotMap::take_end(std::uint64_t inside, std::uint64_t key) {
  if (end_taken_ || inside > kEndReserve) {
    return kFull;
  }
  end_taken_ = true;
  slots_.push_back({.offset = size_ - inside, .length = inside, .key = key});
  return size_ - inside;
}

void SlotMap::take_back(std::span<std::byte> bytes, std::uint64_t offset) {
  for (Slot& slot : slots_) {
    if (slot.offset == offset) {
      slot.taken_back = true;
      std::ranges::fill(bytes.subspan(offset, slot.length), kScribble);
    }
  }
}

// Partly painted is allowed: the message may still be under way, or have failed half-way.
bool SlotMap::explains(std::span<const std::byte> bytes) const {
  std::vector<Slot> ordered = slots_;
  std::sort(ordered.begin(), ordered.end(),
            [](const Slot& a, const Slot& b) { return a.offset < b.offset; });
  std::uint64_t at = 0;
  for (const Slot& slot : ordered) {
    const auto place = bytes.subspan(slot.offset, slot.length);
    if (!is_all(bytes.subspan(at, slot.offset - at), kBlank) ||
        !(slot.taken_back ? is_all(place, kScribble) : is_partly_painted(place, slot.key))) {
      return false;
    }
    at = slot.offset + slot.length;
  }
  return is_all(bytes.subspan(at), kBlank);
}

}  // namespace weft::swarm
