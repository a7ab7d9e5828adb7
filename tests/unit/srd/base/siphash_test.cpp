// Owns the proof that this SipHash is everybody else's.
#include "srd/base/siphash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft {
namespace {

// The key of the published vectors.
SipHash::Key key() {
  SipHash::Key bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i);
  }
  return bytes;
}

// The messages of the published vectors count up from 0; longer ones begin anew, at a number that
// is no multiple of a block.
std::vector<std::byte> message(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(i % 251);
  }
  return bytes;
}

std::string text(const SipHash::Tag& tag) {
  std::string out;
  for (const std::byte byte : tag) {
    out += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    out += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return out;
}

std::string tag_of(std::span<const std::byte> bytes) {
  SipHash hash(key());
  hash.add(bytes);
  return text(hash.finish());
}

// Up to 63 bytes: vectors of the reference implementation. Longer: OpenSSL 3 computed them.
TEST(SipHash, AgreesWithThePublishedVectors) {
  const std::vector<std::pair<std::size_t, const char*>> vectors{
      {0, "a3817f04ba25a8e66df67214c7550293"},    {1, "da87c1d86b99af44347659119b22fc45"},
      {2, "8177228da4a45dc7fca38bdef60affe4"},    {3, "9c70b60c5267a94e5f33b6b02985ed51"},
      {4, "f88164c12d9c8faf7d0f6e7c7bcd5579"},    {5, "1368875980776f8854527a07690e9627"},
      {6, "14eeca338b208613485ea0308fd7a15e"},    {7, "a1f1ebbed8dbc153c0b84aa61ff08239"},
      {8, "3b62a9ba6258f5610f83e264f31497b4"},    {9, "264499060ad9baabc47f8b02bb6d71ed"},
      {15, "5493e99933b0a8117e08ec0f97cfc3d9"},   {16, "6ee2a4ca67b054bbfd3315bf85230577"},
      {31, "2939b0183223fafc1723de4f52c43d35"},   {32, "7c3956ca5eeafc3e363e9d556546eb68"},
      {62, "5853542321f567a005d547a4f04759bd"},   {63, "5150d1772f50834a503e069a973fbd7c"},
      {64, "1eaf077dc0d4cd3f8cad4d383658a74b"},   {100, "39732dd009be17338297c6358fe5e6d9"},
      {4138, "50bf3dbad161bc0f0777860e7a9ff5b3"},
  };
  for (const auto& [size, tag] : vectors) {
    EXPECT_EQ(tag_of(message(size)), tag) << size << " bytes";
  }
}

// Pieces may end in the middle of a block, and may be empty.
TEST(SipHash, PiecesAreOneMessage) {
  Rng rng(5);
  for (int round = 0; round < 300; ++round) {
    const auto whole = message(rng.below(200));
    SipHash hash(key());
    for (std::size_t at = 0; at < whole.size();) {
      const std::size_t size = std::min<std::size_t>(rng.below(20), whole.size() - at);
      hash.add(std::span(whole).subspan(at, size));
      at += size;
    }
    EXPECT_EQ(text(hash.finish()), tag_of(whole));
  }
}

// A comparison that looked at a part only would let a forger guess that part.
TEST(SipHash, TagsThatDifferAnywhereAreNotEqual) {
  SipHash hash(key());
  const SipHash::Tag tag = hash.finish();
  EXPECT_TRUE(equal_tags(tag, tag));
  for (std::size_t bit = 0; bit < 128; ++bit) {
    SipHash::Tag other = tag;
    other[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(equal_tags(tag, other)) << bit;
  }
}

}  // namespace
}  // namespace weft
