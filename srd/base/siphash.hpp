// Owns SipHash-2-4 with a tag of 128 bits: a short key proves where a message comes from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

// After Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012), and their reference
// implementation for the longer tag. A message comes in any number of pieces.
class SipHash {
 public:
  using Key = std::array<std::byte, 16>;
  using Tag = std::array<std::byte, 16>;

  explicit SipHash(const Key& key);
  void add(std::span<const std::byte> piece);
  [[nodiscard]] Tag finish();

 private:
  struct State {
    std::uint64_t v0;
    std::uint64_t v1;
    std::uint64_t v2;
    std::uint64_t v3;
    void round();
    void absorb(std::uint64_t word);
  };

  State state_;
  std::uint64_t pending_ = 0;  // fewer than eight bytes, in the low ones
  std::uint64_t length_ = 0;
};

// The time it takes does not depend on where they differ.
[[nodiscard]] bool equal_tags(std::span<const std::byte, 16> one,
                              std::span<const std::byte, 16> other);

}  // namespace weft
