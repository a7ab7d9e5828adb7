// Owns the digest of a run: equal digests mean that everything observable happened alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "srd/base/rng.hpp"

namespace weft::world {

// Depends on the order of what is added. Not a protection against anybody: a fast mix, good enough
// to notice a difference.
class Digest {
 public:
  void add(std::uint64_t value) { state_ = mix64(state_ ^ value) + 0x632BE59BD9B4E019ULL; }
  void add(std::span<const std::byte> bytes) {
    std::uint64_t word = 0;
    std::size_t at = 0;
    for (; at + sizeof word <= bytes.size(); at += sizeof word) {
      std::memcpy(&word, bytes.data() + at, sizeof word);
      add(word);
    }
    // The length goes in with the rest, so that trailing zeros make a difference.
    word = bytes.size();
    for (; at < bytes.size(); ++at) {
      word = (word << 8) | static_cast<std::uint64_t>(bytes[at]);
    }
    add(word);
  }
  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0x243F6A8885A308D3ULL;
};

}  // namespace weft::world
