// Owns the tests of the envelope: golden frames, each reason to refuse one.
//
// The envelope is Ethernet, IP and UDP around a packet of ours. Two golden frames, one for each
// version of IP, are the ground: what is written must be these bytes, and each refusal is tested by
// changing a few bytes of one of them. So a refusal can only come from that change.
#include "srd/net/envelope.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "srd/base/rng.hpp"
#include "tests/unit/srd/net/frames.hpp"
#include "tests/unit/srd/wire/golden.hpp"

namespace weft::srd::net {
static void PrintTo(EnvelopeFault fault, std::ostream* out) { *out << to_string(fault); }
namespace {

using test::address4;
using test::address6;
using test::Bytes;
using test::frame_of;
using wire::test::from_hex;

constexpr std::uint8_t kBest = 0;  // two code points
constexpr std::uint8_t kShort = 47;
const Bytes kWeft = from_hex("77656674");
const Address kAlice = address4(10, 1, 2, 3);
const Address kBob = address4(10, 1, 2, 4);
const Address kAlice6 = address6("fd005eed000000000000000000000001");
const Address kBob6 = address6("fd005eed0000000000000000ffff0002");

// Computed from docs/wire.md by a program that shares nothing with ours.
constexpr std::string_view kGolden4 =
    "02000a01020402000a01020308004502002000004000401122c30a0102030a010204f005ef00000c000077656674";
constexpr std::string_view kGolden6 =
    "0632addebc4906a30f4e277d86dd6bc0f0ff000c1140fd005eed000000000000000000000001"
    "fd005eed0000000000000000ffff0002f0ffef00000c000077656674";

TEST(Envelope, GoldenFrames) {
  EXPECT_EQ(frame_of(kAlice, kBob, 5, Ecn::capable_0, kBest, kWeft), from_hex(kGolden4));
  EXPECT_EQ(frame_of(kAlice6, kBob6, 255, Ecn::not_capable, kShort, kWeft), from_hex(kGolden6));
}

TEST(Envelope, ParsesTheGoldenFrames) {
  const Bytes frame4 = from_hex(kGolden4);
  const Envelope four = Envelope::parse(frame4, test::kPorts);
  ASSERT_EQ(four.fault(), EnvelopeFault::none);
  EXPECT_EQ(four.source(), kAlice);
  EXPECT_EQ(four.destination(), kBob);
  EXPECT_EQ(four.path(), PathId{5});
  EXPECT_EQ(four.ecn(), Ecn::capable_0);
  EXPECT_EQ(four.dscp(), kBest);
  EXPECT_EQ(four.hop_limit(), 64);
  EXPECT_TRUE(std::ranges::equal(four.packet(), kWeft));

  const Bytes frame6 = from_hex(kGolden6);
  const Envelope six = Envelope::parse(frame6, test::kPorts);
  ASSERT_EQ(six.fault(), EnvelopeFault::none);
  EXPECT_EQ(six.source(), kAlice6);
  EXPECT_EQ(six.destination(), kBob6);
  EXPECT_EQ(six.path(), PathId{255});
  EXPECT_EQ(six.ecn(), Ecn::not_capable);
  EXPECT_EQ(six.dscp(), kShort);
  EXPECT_TRUE(std::ranges::equal(six.packet(), kWeft));
}

TEST(Envelope, RoundTripOfEverything) {
  Rng rng{1};
  for (unsigned path = 0; path < test::kPorts.paths; ++path) {
    for (const bool v4 : {true, false}) {
      for (const Ecn ecn : {Ecn::not_capable, Ecn::capable_1, Ecn::capable_0, Ecn::congested}) {
        for (const std::uint8_t dscp : {kBest, kShort, std::uint8_t{43}, std::uint8_t{63}}) {
          const Bytes packet(rng.below(200), std::byte{0x5A});
          const Address& from = v4 ? kAlice : kAlice6;
          const Address& to = v4 ? kBob : kBob6;
          const Bytes frame = frame_of(from, to, path, ecn, dscp, packet);
          const Envelope envelope = Envelope::parse(frame, test::kPorts);
          ASSERT_EQ(envelope.fault(), EnvelopeFault::none);
          ASSERT_EQ(envelope.source(), from);
          ASSERT_EQ(envelope.destination(), to);
          ASSERT_EQ(envelope.path().value(), path);
          ASSERT_EQ(envelope.ecn(), ecn);
          ASSERT_EQ(envelope.dscp(), dscp);
          ASSERT_EQ(envelope.packet().size(), packet.size());
        }
      }
    }
  }
}

// The writer adds up the constant words once and patches the sum for each packet; carries depend on
// the numbers, so many are tried.
TEST(Envelope, HeaderChecksumHoldsForAllAddressesAndSizes) {
  Rng rng{2};
  for (int round = 0; round < 20'000; ++round) {
    const auto address = [&] {
      const auto word = static_cast<std::uint32_t>(rng.next());
      return address4(1 + word % 223, word >> 8 & 0xFF, word >> 16 & 0xFF, word >> 24);
    };
    const Bytes packet(rng.below(50));
    const Bytes frame = frame_of(address(), address(), rng.below(256), Ecn::congested,
                                 static_cast<std::uint8_t>(rng.below(64)), packet);
    ASSERT_EQ(Envelope::parse(frame, test::kPorts).fault(), EnvelopeFault::none)
        << "round " << round;
  }
}

// What is refused must not leave a part of a frame behind.
TEST(EnvelopeWriter, RefusesWhatCannotBeSent) {
  EXPECT_FALSE(EnvelopeWriter::make(Address{}, test::kPorts).has_value());
  EXPECT_FALSE(EnvelopeWriter::make(address4(0, 0, 0, 0), test::kPorts).has_value());
  EXPECT_FALSE(EnvelopeWriter::make(address4(224, 0, 0, 1), test::kPorts).has_value());
  EXPECT_FALSE(
      EnvelopeWriter::make(address6("ff020000000000000000000000000001"), test::kPorts).has_value());

  const auto four = EnvelopeWriter::make(kAlice, test::kPorts);
  const auto six = EnvelopeWriter::make(kAlice6, test::kPorts);
  ASSERT_TRUE(four && six);
  Bytes frame(kEnvelopeSizeV6, std::byte{0xAB});
  const Bytes before = frame;
  const auto refuses = [&](const EnvelopeWriter& writer, const Address& to, unsigned path,
                           std::size_t size) {
    return !writer.write(frame.data(), to, PathId{static_cast<std::uint16_t>(path)}, Ecn::capable_0,
                         0, size) &&
           frame == before;
  };
  EXPECT_TRUE(refuses(*four, kBob6, 0, 100)) << "other family";
  EXPECT_TRUE(refuses(*six, kBob, 0, 100)) << "other family";
  EXPECT_TRUE(refuses(*four, kBob, 256, 100)) << "no such path";
  EXPECT_TRUE(refuses(*four, kBob, 0, kLargestPacket + 1)) << "too large";
  EXPECT_TRUE(refuses(*four, address4(255, 255, 255, 255), 0, 100)) << "broadcast";
  EXPECT_TRUE(refuses(*six, Address{}, 0, 100)) << "unspecified";
  EXPECT_FALSE(refuses(*four, kBob, 255, kLargestPacket));
}

// Behind the envelope lies the packet, which may be there already.
TEST(EnvelopeWriter, WritesNoMoreThanItsSize) {
  for (const bool v4 : {true, false}) {
    const auto writer = EnvelopeWriter::make(v4 ? kAlice : kAlice6, test::kPorts);
    ASSERT_TRUE(writer);
    EXPECT_EQ(writer->size(), v4 ? kEnvelopeSizeV4 : kEnvelopeSizeV6);
    Bytes frame(100, std::byte{0xAB});
    ASSERT_TRUE(writer->write(frame.data(), v4 ? kBob : kBob6, PathId{0}, Ecn::capable_0, 0, 0));
    EXPECT_TRUE(std::all_of(frame.begin() + static_cast<std::ptrdiff_t>(writer->size()),
                            frame.end(), [](std::byte byte) { return byte == std::byte{0xAB}; }));
  }
}

// --- Refusals [wire 5.3]

// The fault of a golden frame with `hex` written over it at `at`. The checksum is made right again,
// or it would hide all other faults of an IPv4 header; `fix_checksum` is false where there is none.
EnvelopeFault fault_with(std::string_view golden, std::size_t at, std::string_view hex,
                         bool fix_checksum = true) {
  Bytes frame = from_hex(golden);
  const Bytes patch = from_hex(hex);
  std::copy(patch.begin(), patch.end(), frame.begin() + static_cast<std::ptrdiff_t>(at));
  if (fix_checksum) {
    test::fix_ipv4_checksum(frame);
  }
  return Envelope::parse(frame, test::kPorts).fault();
}
// Where the IP header begins; offsets below are of RFC 791 and RFC 8200.
constexpr std::size_t kIp = 14;

// With a whole envelope it is the IP header that says there should be more.
TEST(EnvelopeFaults, EveryTruncation) {
  for (const std::string_view golden : {kGolden4, kGolden6}) {
    const Bytes whole = from_hex(golden);
    const std::size_t head = golden == kGolden4 ? kEnvelopeSizeV4 : kEnvelopeSizeV6;
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_EQ(Envelope::parse(std::span{whole}.first(size), test::kPorts).fault(),
                size < head ? EnvelopeFault::too_short : EnvelopeFault::bad_ip_length)
          << size;
    }
  }
}

// Ethernet pads frames to 60 bytes; what IP does not count is nobody's.
TEST(EnvelopeFaults, PaddingIsIgnored) {
  Bytes frame = from_hex(kGolden4);
  frame.resize(60, std::byte{0xEE});
  const Envelope envelope = Envelope::parse(frame, test::kPorts);
  ASSERT_EQ(envelope.fault(), EnvelopeFault::none);
  EXPECT_TRUE(std::ranges::equal(envelope.packet(), kWeft));
}

TEST(EnvelopeFaults, EtherTypeAndVersion) {
  EXPECT_EQ(fault_with(kGolden4, 12, "0806"), EnvelopeFault::not_ip) << "ARP";
  EXPECT_EQ(fault_with(kGolden4, 12, "8100"), EnvelopeFault::not_ip) << "VLAN tag";
  EXPECT_EQ(fault_with(kGolden4, kIp, "65"), EnvelopeFault::bad_ip_version);
  EXPECT_EQ(fault_with(kGolden6, kIp, "4b", false), EnvelopeFault::bad_ip_version);
  EXPECT_EQ(fault_with(kGolden4, kIp, "46"), EnvelopeFault::ip_options);
  EXPECT_EQ(fault_with(kGolden4, kIp, "44"), EnvelopeFault::ip_options) << "shorter than can be";
}

TEST(EnvelopeFaults, HeaderChecksum) {
  const Bytes whole = from_hex(kGolden4);
  // But the first byte, version and header length, which is looked at before there is a header to
  // sum up.
  for (std::size_t bit = 8 * (kIp + 1); bit < 8 * (kIp + 20); ++bit) {
    Bytes frame = whole;
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_EQ(Envelope::parse(frame, test::kPorts).fault(), EnvelopeFault::bad_ip_checksum)
        << "bit " << bit;
  }
}

// Nobody here puts fragments together, and a later fragment has no UDP header where one would be
// read.
TEST(EnvelopeFaults, Fragments) {
  EXPECT_EQ(fault_with(kGolden4, kIp + 6, "2000"), EnvelopeFault::fragmented) << "more follow";
  EXPECT_EQ(fault_with(kGolden4, kIp + 6, "0001"), EnvelopeFault::fragmented) << "not the first";
  EXPECT_EQ(fault_with(kGolden4, kIp + 6, "8000"), EnvelopeFault::fragmented) << "reserved bit";
  EXPECT_EQ(fault_with(kGolden4, kIp + 6, "0000"), EnvelopeFault::none) << "may be, but is not";
}

TEST(EnvelopeFaults, Protocol) {
  EXPECT_EQ(fault_with(kGolden4, kIp + 9, "06"), EnvelopeFault::not_udp);
  EXPECT_EQ(fault_with(kGolden6, kIp + 6, "2c", false), EnvelopeFault::not_udp)
      << "fragment header";
  EXPECT_EQ(fault_with(kGolden6, kIp + 6, "00", false), EnvelopeFault::not_udp) << "hop-by-hop";
}

TEST(EnvelopeFaults, Lengths) {
  EXPECT_EQ(fault_with(kGolden4, kIp + 2, "0021"), EnvelopeFault::bad_ip_length)
      << "more than there is";
  EXPECT_EQ(fault_with(kGolden4, kIp + 2, "001b"), EnvelopeFault::bad_ip_length)
      << "no room for UDP";
  EXPECT_EQ(fault_with(kGolden4, kIp + 2, "0000"), EnvelopeFault::bad_ip_length);
  EXPECT_EQ(fault_with(kGolden4, kIp + 2, "001f"), EnvelopeFault::bad_udp_length) << "UDP has more";
  EXPECT_EQ(fault_with(kGolden6, kIp + 4, "000d", false), EnvelopeFault::bad_ip_length);
  EXPECT_EQ(fault_with(kGolden6, kIp + 4, "0007", false), EnvelopeFault::bad_ip_length);
  EXPECT_EQ(fault_with(kGolden6, kIp + 4, "0000", false), EnvelopeFault::bad_ip_length)
      << "jumbogram";
  EXPECT_EQ(fault_with(kGolden4, kIp + 24, "000b"), EnvelopeFault::bad_udp_length);
  EXPECT_EQ(fault_with(kGolden4, kIp + 24, "0000"), EnvelopeFault::bad_udp_length);
  EXPECT_EQ(fault_with(kGolden6, kIp + 44, "ffff", false), EnvelopeFault::bad_udp_length);
}

TEST(EnvelopeFaults, Ports) {
  EXPECT_EQ(fault_with(kGolden4, kIp + 22, "12b7"), EnvelopeFault::other_port) << "RoCEv2";
  EXPECT_EQ(fault_with(kGolden4, kIp + 20, "efff"), EnvelopeFault::bad_source_port);
  EXPECT_EQ(fault_with(kGolden4, kIp + 20, "f100"), EnvelopeFault::bad_source_port);
  EXPECT_EQ(fault_with(kGolden4, kIp + 20, "0000"), EnvelopeFault::bad_source_port);
  EXPECT_EQ(fault_with(kGolden4, kIp + 20, "f0ff"), EnvelopeFault::none);
}

TEST(EnvelopeFaults, Addresses) {
  EXPECT_EQ(fault_with(kGolden4, kIp + 12, "00000000"), EnvelopeFault::bad_source);
  EXPECT_EQ(fault_with(kGolden4, kIp + 12, "e0000001"), EnvelopeFault::bad_source);
  EXPECT_EQ(fault_with(kGolden4, kIp + 16, "ffffffff"), EnvelopeFault::bad_destination);
  EXPECT_EQ(fault_with(kGolden4, kIp + 16, "7f000001"), EnvelopeFault::none) << "loopback is one";
  EXPECT_EQ(fault_with(kGolden6, kIp + 8, "ff", false), EnvelopeFault::bad_source);
  EXPECT_EQ(fault_with(kGolden6, kIp + 24, "ff", false), EnvelopeFault::bad_destination);
  EXPECT_EQ(fault_with(kGolden6, kIp + 8, "00000000000000000000000000000000", false),
            EnvelopeFault::bad_source);
  // An IPv6 header must not be able to speak for an IPv4 NIC.
  EXPECT_EQ(fault_with(kGolden6, kIp + 8, "00000000000000000000ffff0a010203", false),
            EnvelopeFault::bad_source);
  EXPECT_EQ(fault_with(kGolden6, kIp + 24, "00000000000000000000ffff0a010203", false),
            EnvelopeFault::bad_destination);
}

// The packet has a checksum of its own, which covers it.
TEST(EnvelopeFaults, ForeignUdpChecksumIsNotLookedAt) {
  EXPECT_EQ(fault_with(kGolden4, kIp + 26, "1234"), EnvelopeFault::none);
  EXPECT_EQ(fault_with(kGolden6, kIp + 46, "1234", false), EnvelopeFault::none);
}

TEST(EnvelopeFaults, HaveNames) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kEnvelopeFaults; ++i) {
    names.insert(to_string(static_cast<EnvelopeFault>(i)));
  }
  EXPECT_EQ(names.size(), kEnvelopeFaults);
  EXPECT_FALSE(names.contains("unknown"));
}

// Frames with up to three random bytes, cut anywhere: nothing may be read beyond them, and what
// passes must be a consistent frame. Half of them get their checksum made right, so that damage
// reaches the later checks.
class EnvelopeAnything : public testing::TestWithParam<std::uint64_t> {};

TEST_P(EnvelopeAnything, LetsOnlyConsistentFramesThrough) {
  Rng rng{GetParam()};
  int good = 0;
  for (int round = 0; round < 20'000; ++round) {
    Bytes frame = from_hex(rng.chance(0.5) ? kGolden4 : kGolden6);
    for (std::uint32_t damage = rng.below(4); damage > 0; --damage) {
      frame[rng.below(static_cast<std::uint32_t>(frame.size()))] =
          static_cast<std::byte>(rng.next());
    }
    if (rng.chance(0.5)) {
      test::fix_ipv4_checksum(frame);
    }
    frame.resize(rng.chance(0.7) ? frame.size() : rng.below(120));
    const Envelope envelope = Envelope::parse(frame, test::kPorts);
    if (envelope.ok()) {
      ++good;
      ASSERT_LT(envelope.path().value(), test::kPorts.paths);
      ASSERT_EQ(envelope.source().is_v4(), envelope.destination().is_v4());
      const std::byte* const end = envelope.packet().data() + envelope.packet().size();
      ASSERT_LE(end, frame.data() + frame.size());
    }
  }
  // Many are not damaged where it counts; a test in which all were refused would prove nothing.
  EXPECT_GT(good, 1000);
}

INSTANTIATE_TEST_SUITE_P(Seeds, EnvelopeAnything, testing::Values(1, 2, 3));

// --- Changed on the way

// As a switch does that trims: lengths and checksum are right again, and all else is kept, so that
// the receiver can tell its sender which path was congested.
TEST(Cut, LeavesAValidShorterFrame) {
  for (const bool v4 : {true, false}) {
    Bytes frame =
        frame_of(v4 ? kAlice : kAlice6, v4 ? kBob : kBob6, 9, Ecn::congested, kBest, Bytes(100));
    frame.resize(cut(frame, Envelope::parse(frame, test::kPorts), 64, kShort));
    const Envelope envelope = Envelope::parse(frame, test::kPorts);
    ASSERT_EQ(envelope.fault(), EnvelopeFault::none);
    EXPECT_EQ(envelope.dscp(), kShort);
    EXPECT_EQ(envelope.ecn(), Ecn::congested);
    EXPECT_EQ(envelope.path(), PathId{9});
    EXPECT_EQ(envelope.packet().size(), 64U);
  }
}

// A frame is of one protocol only, by its ports.
TEST(Envelope, OtherPortsAreAnotherProtocols) {
  constexpr UdpPorts kOther{.destination = 4791, .first_source = 0xC000, .paths = 0x4000};
  const auto writer = EnvelopeWriter::make(kAlice, kOther);
  ASSERT_TRUE(writer);
  Bytes frame(writer->size() + 8);
  for (const unsigned path : {0U, 0x3FFFU}) {
    ASSERT_TRUE(writer->write(frame.data(), kBob, PathId{static_cast<std::uint16_t>(path)},
                              Ecn::capable_0, kBest, 8));
    EXPECT_EQ(Envelope::parse(frame, kOther).path(), PathId{static_cast<std::uint16_t>(path)});
    EXPECT_EQ(Envelope::parse(frame, test::kPorts).fault(), EnvelopeFault::other_port);
  }
  EXPECT_FALSE(writer->write(frame.data(), kBob, PathId{0x4000}, Ecn::capable_0, kBest, 8));
}

// Only of a protocol that has groups.
TEST(Envelope, GroupsAreWhatAProtocolHas) {
  constexpr UdpPorts kGroups{
      .destination = 4791, .first_source = 0xC000, .paths = 0x4000, .groups = true};
  struct {
    Address from;
    Address group;
    MacAddress mac;
  } const cases[] = {
      {kAlice,
       address4(239, 200, 7, 9),
       {std::byte{1}, std::byte{0}, std::byte{0x5E}, std::byte{0x48}, std::byte{7}, std::byte{9}}},
      {kAlice6,
       {{std::byte{0xFF},
         std::byte{0x0E},
         {},
         {},
         {},
         {},
         {},
         {},
         {},
         {},
         {},
         {},
         std::byte{1},
         std::byte{2},
         std::byte{3},
         std::byte{4}}},
       {std::byte{0x33}, std::byte{0x33}, std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}}},
  };
  for (const auto& one : cases) {
    const auto writer = EnvelopeWriter::make(one.from, kGroups);
    const auto plain = EnvelopeWriter::make(
        one.from, {.destination = 4791, .first_source = 0xC000, .paths = 0x4000});
    ASSERT_TRUE(writer && plain);
    Bytes frame(writer->size() + 8);
    EXPECT_FALSE(plain->write(frame.data(), one.group, PathId{1}, Ecn::capable_0, kBest, 8));
    ASSERT_TRUE(writer->write(frame.data(), one.group, PathId{1}, Ecn::capable_0, kBest, 8));
    EXPECT_TRUE(std::equal(one.mac.begin(), one.mac.end(), frame.begin()));
    EXPECT_EQ(Envelope::parse(frame, kGroups).destination(), one.group);
    UdpPorts without = kGroups;
    without.groups = false;
    EXPECT_EQ(Envelope::parse(frame, without).fault(), EnvelopeFault::bad_destination);
    EXPECT_FALSE(EnvelopeWriter::make(one.group, kGroups));
  }
}

// --- MAC addresses [wire 2.1]

// The two lowest bits of the first byte: locally administered, and no group.
TEST(Mac, IsLocalAndUnicast) {
  for (const Address& address : {kAlice, kBob, kAlice6, kBob6}) {
    EXPECT_EQ(mac_of(address)[0] & std::byte{0x03}, std::byte{0x02});
  }
}

// There is no ARP to notice that two NICs have the same one.
TEST(Mac, DiffersBetweenNeighbours) {
  std::set<MacAddress> macs;
  for (unsigned i = 0; i < 10'000; ++i) {
    Address six = kAlice6;
    six.bytes[14] = static_cast<std::byte>(i >> 8);
    six.bytes[15] = static_cast<std::byte>(i);
    macs.insert(mac_of(six));
    macs.insert(mac_of(address4(10, 0, i >> 8, i & 0xFF)));
  }
  EXPECT_EQ(macs.size(), 20'000U);
}

// Addresses of a network differ in a few bits only, all at the end.
TEST(AddressHash, SeparatesNeighbours) {
  std::unordered_set<std::size_t> hashes;
  for (unsigned i = 0; i < 10'000; ++i) {
    hashes.insert(std::hash<Address>{}(address4(10, 0, i >> 8, i & 0xFF)));
  }
  EXPECT_EQ(hashes.size(), 10'000U);
}

}  // namespace
}  // namespace weft::srd::net
