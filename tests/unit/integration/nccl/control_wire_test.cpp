// Owns the proof that a control message is taken only if it is one.
#include "integration/nccl/core/control_wire.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "integration/nccl/abi.hpp"
#include "srd/base/rng.hpp"

namespace weft::nccl {
namespace {

std::vector<std::byte> message(ControlKind kind, std::size_t entries) {
  ControlHeader header;
  header.kind = static_cast<std::uint8_t>(kind);
  header.count = static_cast<std::uint8_t>(entries);
  std::vector<std::byte> bytes(sizeof header + entries * sizeof(ControlEntry));
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

TEST(ControlWire, TakesWhatIsWhole) {
  EXPECT_TRUE(parse_control(message(ControlKind::hello, 0)));
  EXPECT_TRUE(parse_control(message(ControlKind::goodbye, 0)));
  EXPECT_TRUE(parse_control(message(ControlKind::announce, 1)));
  EXPECT_TRUE(parse_control(message(ControlKind::announce, kMaxGroup)));
}

// Each case has one fault: code behind the parser relies on every one of these refusals.
TEST(ControlWire, DropsWhatIsNot) {
  EXPECT_FALSE(parse_control({}));
  EXPECT_FALSE(parse_control(message(ControlKind::announce, 0)));
  EXPECT_FALSE(parse_control(message(ControlKind::announce, kMaxGroup + 1)));
  EXPECT_FALSE(parse_control(message(ControlKind::hello, 1)));
  EXPECT_FALSE(parse_control(message(static_cast<ControlKind>(0), 0)));
  EXPECT_FALSE(parse_control(message(static_cast<ControlKind>(7), 0)));
  auto other = message(ControlKind::hello, 0);
  other[0] = std::byte{kControlVersion + 1};
  EXPECT_FALSE(parse_control(other)) << "another version";
  auto flags = message(ControlKind::hello, 0);
  flags[2] = std::byte{0x80};
  EXPECT_FALSE(parse_control(flags)) << "an unknown flag";
  auto longer = message(ControlKind::announce, 2);
  longer.push_back(std::byte{0});
  EXPECT_FALSE(parse_control(longer));
  // The size of an entry is in its bytes 12 to 15, the highest first: 0x40 there is 1 GiB.
  auto huge = message(ControlKind::announce, 1);
  huge[sizeof(ControlHeader) + 12] = std::byte{0x40};
  EXPECT_TRUE(parse_control(huge)) << "1 GiB";
  huge.back() = std::byte{0};
  huge[sizeof(ControlHeader) + 15] = std::byte{1};
  EXPECT_FALSE(parse_control(huge)) << "a byte more";
}

TEST(ControlWire, EagerMessagesHaveATagAndAtMostSoManyBytes) {
  EagerHeader header;
  header.control.kind = static_cast<std::uint8_t>(ControlKind::eager);
  header.tag = -5;
  std::vector<std::byte> bytes(kMaxMessage + 1);
  std::memcpy(bytes.data(), &header, sizeof header);
  const auto first = [&](std::size_t length) { return std::span{bytes}.first(length); };
  EXPECT_FALSE(parse_control(first(sizeof header - 1)));
  EXPECT_TRUE(parse_control(first(sizeof header)));
  EXPECT_TRUE(parse_control(first(kMaxMessage)));
  EXPECT_FALSE(parse_control(first(kMaxMessage + 1)));
  EXPECT_EQ(tag_of(first(sizeof header)), -5);
  bytes[2] = std::byte{kToSender};
  EXPECT_FALSE(parse_control(first(sizeof header))) << "a flag of goodbyes";
  bytes[2] = std::byte{0};
  bytes[3] = std::byte{1};
  EXPECT_FALSE(parse_control(first(sizeof header))) << "a count";
}

TEST(ControlWire, SurvivesAnyBytes) {
  Rng rng(7);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<std::byte> bytes(rng.below(kMaxMessage + 8));
    for (std::byte& one : bytes) {
      one = static_cast<std::byte>(rng.next());
    }
    // Mostly with a header that is right or nearly: bytes by chance would not get beyond the
    // version.
    if (bytes.size() >= 4 && rng.chance(0.9)) {
      bytes[0] = std::byte{kControlVersion};
      bytes[1] = static_cast<std::byte>(rng.below(9));
      bytes[2] = static_cast<std::byte>(rng.below(2));
      bytes[3] = static_cast<std::byte>(rng.below(10));
    }
    if (const auto header = parse_control(bytes)) {
      EXPECT_LE(sizeof *header + header->count * sizeof(ControlEntry), bytes.size());
    }
  }
}

// The 32 bits of immediate data hold three numbers; a sequence number only in part, enough to tell
// one use of a slot from the next.
TEST(Immediates, ComeBackAsTheyWere) {
  Rng rng(11);
  for (int i = 0; i < 10'000; ++i) {
    const Immediate sent{static_cast<std::uint16_t>(rng.next()),
                         static_cast<std::uint32_t>(rng.next()),
                         static_cast<std::uint8_t>(rng.below(8))};
    const Immediate got = Immediate::unpack(sent.pack());
    EXPECT_EQ(got.comm, sent.comm);
    EXPECT_EQ(got.sub, sent.sub);
    EXPECT_TRUE(got.means(sent.sequence));
    EXPECT_FALSE(got.means(sent.sequence + Immediate::kSlots)) << "an earlier use of the slot";
  }
}

}  // namespace
}  // namespace weft::nccl
