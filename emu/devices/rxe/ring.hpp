// Owns a ring that the device shares with the application. The application may write anything into
// it at any time: our own index is kept here, the other one is masked whenever it is read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emu/devices/rxe/abi.hpp"
#include "emu/kernel/uverbs/queue_memory.hpp"

namespace weft::devices::rxe {

class Ring {
 public:
  enum class Ours : std::uint8_t { producer, consumer };

  // With room for `entries` of `element` bytes, at least.
  Ring(kernel::QueueMemory& memory, Ours ours, std::uint32_t entries, std::size_t element);
  ~Ring() { memory_.release(region_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  [[nodiscard]] bool valid() const { return region_.data != nullptr; }
  // How many entries it has room for.
  [[nodiscard]] std::uint32_t capacity() const { return mask_; }
  [[nodiscard]] MapInfo map_info() const;

  // Entries between the two indices, as far as can be seen.
  [[nodiscard]] std::uint32_t size() const;
  // The place of the entry that is `ahead` of our own index.
  [[nodiscard]] std::byte* at(std::uint32_t ahead) const;
  // Lets the application see that our index has moved by `count`.
  void advance(std::uint32_t count);
  // Of a ring that the application does not know yet.
  void set_theirs(std::uint32_t index) { theirs() = index; }
  // Consumer: takes all that is there, and looks at none of it.
  void discard() { advance(size()); }

 private:
  [[nodiscard]] RingHeader& header() const { return *reinterpret_cast<RingHeader*>(region_.data); }
  [[nodiscard]] std::uint32_t& ours() const;
  [[nodiscard]] std::uint32_t& theirs() const;

  kernel::QueueMemory& memory_;
  Ours ours_;
  std::uint32_t mask_ = 0;
  std::uint32_t shift_ = 0;
  kernel::QueueRegion region_;
  // Our own index; the word in shared memory is written from it and never read back.
  std::uint32_t index_ = 0;
};

}  // namespace weft::devices::rxe
