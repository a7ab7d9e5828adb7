// Owns the tests of the quick look at frames: whatever their length, nothing beyond is read.
//
// weftd looks at every frame of every process in this way, and frames from outside come from
// strangers.
#include "srd/net/flow_key.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "srd/net/envelope.hpp"
#include "tests/unit/srd/net/frames.hpp"

namespace weft::srd::net {
namespace {

using test::address6;
using test::Bytes;
using test::frame_of;

const Address kAlice = Address::v4(10, 1, 2, 3);
const Address kBob = Address::v4(10, 1, 2, 4);
const Address kAlice6 = address6("fd005eed000000000000000000000001");
const Address kBob6 = address6("fd005eed0000000000000000ffff0002");
const Bytes kPacket(8, std::byte{0x5A});

Bytes v4_frame(unsigned path = 5) {
  return frame_of(kAlice, kBob, path, Ecn::capable_0, 0, kPacket);
}
Bytes v6_frame(unsigned path = 5) {
  return frame_of(kAlice6, kBob6, path, Ecn::capable_0, 0, kPacket);
}
// Of ARP, with an IPv4 address as its sender and nothing else that matters.
Bytes arp_frame() {
  Bytes frame(60);
  frame[kEtherType] = std::byte{0x08};
  frame[kEtherType + 1] = std::byte{0x06};
  std::ranges::copy(kAlice.v4_bytes(), &frame[kEthernetSize + kArpSender]);
  return frame;
}

TEST(FlowKey, NamesTheEndsOfAUdpFrame) {
  for (const bool v4 : {true, false}) {
    const Bytes frame = v4 ? v4_frame() : v6_frame();
    const FlowKey key = FlowKey::parse(frame);
    ASSERT_TRUE(key.is_udp());
    EXPECT_EQ(key.source(), v4 ? kAlice : kAlice6);
    EXPECT_EQ(key.destination(), v4 ? kBob : kBob6);
    EXPECT_EQ(key.destination_port(), test::kPorts.destination);
    EXPECT_TRUE(std::ranges::equal(key.payload(), kPacket));
    EXPECT_EQ(key.claimed_source(), v4 ? kAlice : kAlice6);
  }
}

// IPv4: a header length other than 20, another protocol, another EtherType. IPv6: TCP.
TEST(FlowKey, OtherThanPlainUdpIsNone) {
  for (const std::size_t at : {kEthernetSize, kEthernetSize + kV4Protocol, kEtherType}) {
    Bytes frame = v4_frame();
    frame[at] ^= std::byte{1};
    EXPECT_FALSE(FlowKey::parse(frame).is_udp()) << at;
  }
  Bytes frame = v6_frame();
  frame[kEthernetSize + kV6NextHeader] = std::byte{6};
  EXPECT_FALSE(FlowKey::parse(frame).is_udp());
  EXPECT_EQ(FlowKey::parse(frame).claimed_source(), kAlice6);
}

// A host may not speak for another by ARP either: that would move the other's address.
TEST(FlowKey, ArpClaimsItsSender) {
  const Bytes frame = arp_frame();
  EXPECT_FALSE(FlowKey::parse(frame).is_udp());
  EXPECT_EQ(FlowKey::parse(frame).claimed_source(), kAlice);
}

// Each beginning of a frame lies in memory of its own, so that the sanitizer sees a byte too far.
TEST(FlowKey, ShortFramesNameWhatTheyHold) {
  struct Case {
    Bytes frame;
    std::size_t claims;  // with so many bytes it names its source
    std::size_t udp;     // and with so many it is UDP
  };
  for (const Case& it : {Case{v4_frame(), kEthernetSize + 16, kEthernetSize + 28},
                         Case{v6_frame(), kEthernetSize + 40, kEthernetSize + 48},
                         Case{arp_frame(), kEthernetSize + 18, SIZE_MAX}}) {
    for (std::size_t size = 0; size <= it.frame.size(); ++size) {
      const auto part = std::make_unique<std::byte[]>(size);
      std::memcpy(part.get(), it.frame.data(), size);
      const FlowKey key = FlowKey::parse({part.get(), size});
      EXPECT_EQ(key.claimed_source().has_value(), size >= it.claims) << size;
      ASSERT_EQ(key.is_udp(), size >= it.udp) << size;
      if (size >= kEthernetSize) {
        (void)key.hash();
      }
    }
  }
}

// Paths of one pair must spread over equal links; packets of one path must not, or they would
// overtake each other. Frames without ports are told apart by their Ethernet addresses.
TEST(FlowKey, HashTellsPathsApartAndNothingBehindTheHeaders) {
  for (const bool v4 : {true, false}) {
    std::set<std::uint32_t> hashes;
    for (unsigned path = 0; path < 64; ++path) {
      Bytes frame = v4 ? v4_frame(path) : v6_frame(path);
      hashes.insert(FlowKey::parse(frame).hash());
      frame.back() ^= std::byte{1};
      hashes.insert(FlowKey::parse(frame).hash());
    }
    EXPECT_EQ(hashes.size(), 64U);
  }
  Bytes other = arp_frame();
  const std::uint32_t before = FlowKey::parse(other).hash();
  other.back() ^= std::byte{1};
  EXPECT_EQ(FlowKey::parse(other).hash(), before);
  other[5] ^= std::byte{1};
  EXPECT_NE(FlowKey::parse(other).hash(), before);
}

}  // namespace
}  // namespace weft::srd::net
