// Owns the tests that frames of two protocols are each treated by their own codec.
//
// weftd carries SRD and RoCEv2 on one network and tells them apart by UDP port. Here the second one
// is TrailerCodec, which differs from SRD in all that a codec may differ in, so that nothing of
// RoCEv2 is needed.
#include "srd/net/frame_codec.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

#include "srd/wire/srd_codec.hpp"
#include "tests/unit/srd/net/frames.hpp"
#include "tests/unit/srd/net/trailer_codec.hpp"

namespace weft::srd::net {
namespace {

using test::Bytes;
using test::TrailerCodec;
using wire::SrdCodec;
using Both = CodecList<SrdCodec, TrailerCodec>;
static_assert(Both::kSteeringBytes == SrdCodec::kSteeringBytes);
static_assert(Both::kTrimmedPacket == SrdCodec::kTrimmedPacket);

const Address kAlice = Address::v4(10, 1, 2, 3);
const Address kBob = Address::v4(10, 1, 2, 4);

// A frame of that protocol, with any packet in it.
template <class Codec>
Bytes frame_with(const Bytes& packet, std::uint8_t dscp = 0) {
  const auto writer = EnvelopeWriter::make(kAlice, Codec::kPorts);
  Bytes frame(writer->size());
  EXPECT_TRUE(writer->write(frame.data(), kBob, PathId{3}, Ecn::capable_0, dscp, packet.size()));
  frame.insert(frame.end(), packet.begin(), packet.end());
  return frame;
}

Bytes trailer_packet() {
  Bytes packet(TrailerCodec::kHeader + 100 + TrailerCodec::kCheck);
  packet[1] = std::byte{7};  // queue pair 0x070009
  packet[3] = std::byte{9};
  return packet;
}

// The numbers are those of the golden packet: its header names the receiver's attachment, and the
// sender's with its life. The other protocol names only a queue pair.
TEST(CodecList, SteersEachByItsOwnKey) {
  const Bytes srd = frame_with<SrdCodec>(wire::test::golden("write"));
  const auto one = Both::steer(FlowKey::parse(srd));
  ASSERT_TRUE(one.known);
  EXPECT_EQ(one.place, 0x1122U);
  EXPECT_TRUE(one.names_sender);
  EXPECT_EQ(one.sender, AttachmentId{0x99aa});
  EXPECT_EQ(one.life, Life{0x01020304});

  const Bytes trailer = frame_with<TrailerCodec>(trailer_packet());
  const auto other = Both::steer(FlowKey::parse(trailer));
  ASSERT_TRUE(other.known);
  EXPECT_EQ(other.place, 7U);
  EXPECT_FALSE(other.names_sender);
  EXPECT_FALSE(other.management);
}

// Another destination port: no codec of the list knows it.
TEST(CodecList, NobodysFrameIsNotSteered) {
  Bytes frame = frame_with<TrailerCodec>(trailer_packet());
  frame[kEnvelopeSizeV4 - kUdpSize + kUdpDestinationPort] ^= std::byte{1};
  EXPECT_FALSE(Both::steer(FlowKey::parse(frame)).known);
  EXPECT_EQ(Both::check(FlowKey::parse(frame), frame), PacketFault::malformed);
  EXPECT_EQ(Both::checked_from(frame), 0U);
  EXPECT_FALSE(Both::steer(FlowKey::parse({})).known);
}

// What steer() reads lies within kSteeringBytes; the list must check that before it asks a codec.
TEST(CodecList, APacketTooShortToSteerIsNotSteered) {
  for (std::size_t size = 0; size < SrdCodec::kSteeringBytes; ++size) {
    EXPECT_FALSE(Both::steer(FlowKey::parse(frame_with<SrdCodec>(Bytes(size)))).known);
  }
  EXPECT_TRUE(
      Both::steer(FlowKey::parse(frame_with<SrdCodec>(Bytes(SrdCodec::kSteeringBytes)))).known);
}

// The first change is in the last byte: of SRD that is payload, of the other protocol the checksum
// itself. The second one is in the middle of what both cover.
TEST(CodecList, SealsAndChecksEachItsOwnWay) {
  for (Bytes frame : {frame_with<SrdCodec>(wire::test::golden("write")),
                      frame_with<TrailerCodec>(trailer_packet())}) {
    frame.back() ^= std::byte{1};
    EXPECT_EQ(Both::check(FlowKey::parse(frame), frame), PacketFault::corrupted);
    Both::seal(frame);
    EXPECT_EQ(Both::check(FlowKey::parse(frame), frame), PacketFault::none);
    EXPECT_EQ(Both::checked_from(frame), kEnvelopeSizeV4);
    frame[kEnvelopeSizeV4 + 56] ^= std::byte{1};
    EXPECT_EQ(Both::check(FlowKey::parse(frame), frame), PacketFault::corrupted);
  }
}

// A process may write anything into its ring and say that it is not sealed yet.
TEST(CodecList, SealingWhatIsTooShortIsHarmless) {
  for (std::size_t size = 0; size < 80; ++size) {
    Bytes srd = frame_with<SrdCodec>(Bytes(size));
    Bytes trailer = frame_with<TrailerCodec>(Bytes(size));
    Both::seal(srd);
    Both::seal(trailer);
    EXPECT_EQ(srd.size(), kEnvelopeSizeV4 + size);
  }
}

TEST(CodecList, OnlyWhatCanBeTrimmedIsTrimmed) {
  Bytes srd = frame_with<SrdCodec>(wire::test::golden("write"));
  EXPECT_TRUE(Both::may_trim(FlowKey::parse(srd), 0, srd.size()));
  EXPECT_FALSE(Both::may_trim(FlowKey::parse(srd), wire::kDscpControl, srd.size()));
  EXPECT_FALSE(Both::may_trim(FlowKey::parse(srd), 0, kEnvelopeSizeV4 + Both::kTrimmedPacket));
  EXPECT_EQ(Both::trim(srd), kEnvelopeSizeV4 + Both::kTrimmedPacket);
  Bytes trailer = frame_with<TrailerCodec>(trailer_packet());
  EXPECT_FALSE(Both::may_trim(FlowKey::parse(trailer), 0, trailer.size()));
  EXPECT_EQ(Both::trim(trailer), trailer.size());
}

// A port serves short answers first; the DSCP of one protocol means nothing in the other.
TEST(CodecList, EachHasItsOwnClassForShortAnswers) {
  const Bytes srd = frame_with<SrdCodec>(wire::test::golden("ack"));
  const Bytes trailer = frame_with<TrailerCodec>(trailer_packet());
  for (const std::uint8_t dscp : {std::uint8_t{0}, wire::kDscpControl, TrailerCodec::kAnswerDscp}) {
    EXPECT_EQ(Both::is_control(FlowKey::parse(srd), dscp), dscp == wire::kDscpControl);
    EXPECT_EQ(Both::is_control(FlowKey::parse(trailer), dscp), dscp == TrailerCodec::kAnswerDscp);
  }
}

}  // namespace
}  // namespace weft::srd::net
