// Owns the rounds of SipHash.
#include "srd/base/siphash.hpp"

#include <bit>
#include <cstring>

namespace weft {
namespace {

constexpr unsigned kWord = 8;

std::uint64_t load(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  if constexpr (std::endian::native == std::endian::big) {
    word = __builtin_bswap64(word);
  }
  return word;
}

void store(std::byte* to, std::uint64_t word) {
  for (unsigned i = 0; i < kWord; ++i) {
    to[i] = static_cast<std::byte>(word >> (8 * i));
  }
}

}  // namespace

SipHash::SipHash(const Key& key)
    : state_{.v0 = load(key.data()) ^ 0x736F6D6570736575ULL,
             .v1 = load(key.data() + kWord) ^ 0x646F72616E646F6DULL ^ 0xEE,
             .v2 = load(key.data()) ^ 0x6C7967656E657261ULL,
             .v3 = load(key.data() + kWord) ^ 0x7465646279746573ULL} {}

inline void SipHash::State::round() {
  v0 += v1;
  v2 += v3;
  v1 = std::rotl(v1, 13) ^ v0;
  v3 = std::rotl(v3, 16) ^ v2;
  v0 = std::rotl(v0, 32) + v3;
  v2 += v1;
  v3 = std::rotl(v3, 21) ^ v0;
  v1 = std::rotl(v1, 17) ^ v2;
  v2 = std::rotl(v2, 32);
}

inline void SipHash::State::absorb(std::uint64_t word) {
  v3 ^= word;
  round();
  round();
  v0 ^= word;
}

void SipHash::add(std::span<const std::byte> piece) {
  State state = state_;  // a copy: for all the compiler knows, `piece` may overlap our members
  const std::byte* at = piece.data();
  std::size_t left = piece.size();
  unsigned filled = static_cast<unsigned>(length_ % kWord);
  length_ += left;
  while (left > 0 && filled != 0) {
    pending_ |= std::to_integer<std::uint64_t>(*at++) << (8 * filled);
    --left;
    filled = (filled + 1) % kWord;
    if (filled == 0) {
      state.absorb(pending_);
      pending_ = 0;
    }
  }
  for (; left >= kWord; left -= kWord, at += kWord) {
    state.absorb(load(at));
  }
  for (unsigned i = 0; i < left; ++i) {
    pending_ |= std::to_integer<std::uint64_t>(at[i]) << (8 * i);
  }
  state_ = state;
}

SipHash::Tag SipHash::finish() {
  state_.absorb(pending_ | length_ << 56);
  const auto half = [this] {
    for (int i = 0; i < 4; ++i) {
      state_.round();
    }
    return state_.v0 ^ state_.v1 ^ state_.v2 ^ state_.v3;
  };
  Tag tag;
  state_.v2 ^= 0xEE;
  store(tag.data(), half());
  state_.v1 ^= 0xDD;
  store(tag.data() + kWord, half());
  return tag;
}

bool equal_tags(std::span<const std::byte, 16> one, std::span<const std::byte, 16> other) {
  std::byte difference{0};
  for (std::size_t i = 0; i < 16; ++i) {
    difference |= one[i] ^ other[i];
  }
  return difference == std::byte{0};
}

}  // namespace weft
