// Owns memory whose every byte is predictable, so that any wrong write shows.
//
// All memory starts as kBlank. A message has a content of its own, computed from its key, so a byte
// in the wrong place differs from what belongs there. Memory that its owner has taken back becomes
// kScribble: a write after the completion shows as a byte that is not, and a read as wrong content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft::swarm {

inline constexpr std::byte kBlank{0xA5};     // memory that was never written
inline constexpr std::byte kScribble{0x3C};  // memory that its owner has taken back

// Byte `at` of the content named `key`. The content of message n is its own, whatever its length.
[[nodiscard]] inline std::byte content(std::uint64_t key, std::uint64_t at) {
  return static_cast<std::byte>(mix64(key * 0x9E3779B97F4A7C15ULL + at / 8) >> (8 * (at % 8)));
}
// Fills `bytes` with the content named `key`, beginning with its byte `at`; is_painted() compares
// in the same way.
void paint(std::span<std::byte> bytes, std::uint64_t key, std::uint64_t at = 0);
[[nodiscard]] bool is_painted(std::span<const std::byte> bytes, std::uint64_t key,
                              std::uint64_t at = 0);
// Every byte is either blank or of that content: what memory may look like while a message is under
// way, or after it failed half-way.
[[nodiscard]] bool is_partly_painted(std::span<const std::byte> bytes, std::uint64_t key,
                                     std::uint64_t at = 0);
[[nodiscard]] bool is_all(std::span<const std::byte> bytes, std::byte value);

// Memory of a request, a receive or a region, with a blank margin on both sides, in which a write
// beyond either end shows. A default-constructed or freed one has no memory: only exists() may be
// called.
class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  explicit GuardedBuffer(std::size_t size);

  [[nodiscard]] std::span<std::byte> bytes() { return {memory_.get() + kMargin, size_}; }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {memory_.get() + kMargin, size_};
  }
  [[nodiscard]] bool margins_intact() const;
  [[nodiscard]] bool exists() const { return memory_ != nullptr; }
  // The owner takes the memory back: from now on no write is allowed, and what is read is garbage.
  void scribble();
  [[nodiscard]] bool still_scribbled() const;
  // From now on no access at all is allowed; the address sanitizer reports one.
  void free() { memory_.reset(); }

 private:
  static constexpr std::size_t kMargin = 16;
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
};

// Assigns places of a region to messages, each place once, with blank bytes between them: a write
// beyond its own place hits blank bytes first.
class SlotMap {
 public:
  struct Slot {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::uint64_t key = 0;
    bool taken_back = false;  // scribbled over: no write is allowed there any more
  };
  static constexpr std::uint64_t kFull = ~std::uint64_t{0};

  explicit SlotMap(std::uint64_t size) : size_(size) {}
  // The offset, or kFull.
  std::uint64_t take(std::uint64_t length, std::uint64_t key);
  // A place for a message of which only `inside` bytes lie within the region; at most one.
  std::uint64_t take_end(std::uint64_t inside, std::uint64_t key);
  // The message at this place is complete: any later write there shows.
  void take_back(std::span<std::byte> bytes, std::uint64_t offset);
  // Whether every byte is blank, or part of the content of the message whose place it is.
  [[nodiscard]] bool explains(std::span<const std::byte> bytes) const;

 private:
  // The end of the region is for take_end() alone.
  static constexpr std::uint64_t kEndReserve = 256;
  std::uint64_t size_;
  // Never 0, so that the first place has blank bytes before it as well.
  std::uint64_t next_ = 16;
  bool end_taken_ = false;
  std::vector<Slot> slots_;
};

}  // namespace weft::swarm
