// Owns the tests of what carriers and weftd know of RoCEv2, on frames that Linux has sent.
#include <gtest/gtest.h>

#include <algorithm>

#include "emu/roce/wire/roce_codec.hpp"
#include "tests/unit/emu/roce/captures.hpp"

namespace weft::roce::wire {
namespace {

using srd::net::PacketFault;

std::span<const std::byte> packet_of(std::span<const std::byte> frame) {
  Datagram datagram;
  EXPECT_EQ(parse_datagram(frame, datagram), DatagramFault::none);
  return datagram.packet;
}

TEST(RoceCodec, SealsFramesAsLinuxDoes) {
  for (const KnownCapture& capture : kCaptures) {
    for (const auto& frame : roce_frames(capture.name)) {
      EXPECT_EQ(RoceCodec::check(frame), PacketFault::none);
      auto again = frame;
      std::fill_n(again.end() - kIcrcSize, kIcrcSize, std::byte{});
      EXPECT_EQ(RoceCodec::check(again), PacketFault::corrupted);
      RoceCodec::seal(again);
      EXPECT_EQ(again, frame);
    }
  }
}

TEST(RoceCodec, ChecksAndSealsAnyBytes) {
  const auto frame = roce_frames(kCaptures[0].name).front();
  for (std::size_t size = 0; size < frame.size(); ++size) {
    std::vector<std::byte> piece(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(RoceCodec::check(piece), PacketFault::malformed) << size;
    const auto before = piece;
    RoceCodec::seal(piece);
    EXPECT_EQ(piece, before) << size;
  }
}

TEST(RoceCodec, SteersByTheNumberOfTheQueuePair) {
  // Linux gives its queue pairs small numbers: the connection managers' is 1, others follow.
  std::size_t management = 0;
  for (const auto& frame : roce_frames("rxe61-rping-C2")) {
    const auto steering = RoceCodec::steer(packet_of(frame));
    EXPECT_EQ(steering.place, 0U);
    EXPECT_FALSE(steering.names_sender);
    management += steering.management ? 1 : 0;
  }
  EXPECT_EQ(management, 5U);  // REQ, REP, RTU, DREQ, DREP

  std::vector<std::byte> packet(RoceCodec::kSteeringBytes);
  packet[5] = std::byte{0xFE};
  packet[7] = std::byte{1};
  EXPECT_EQ(RoceCodec::steer(packet).place, 0xFEU);
  EXPECT_FALSE(RoceCodec::steer(packet).management);
}

TEST(RoceCodec, ThereIsNoDirectWayToManagementOrGroups) {
  srd::TxPacket packet;
  packet.header_size = sizeof(Bth);
  packet.header.fill({});
  const auto way_to = [&packet](std::uint32_t qpn) {
    for (std::size_t i = 0; i < 3; ++i) {
      packet.header[5 + i] = static_cast<std::byte>(qpn >> (16 - 8 * i));
    }
    return RoceCodec::destination_of(packet);
  };
  EXPECT_EQ(way_to(0x070002), srd::AttachmentId{7});
  EXPECT_EQ(way_to(0xFE0000), srd::AttachmentId{0xFE});
  EXPECT_FALSE(way_to(RoceCodec::kManagementQpn));
  EXPECT_FALSE(way_to(RoceCodec::kMulticastQpn));
  packet.header_size = sizeof(Bth) - 1;
  EXPECT_FALSE(way_to(0x070002));
}

}  // namespace
}  // namespace weft::roce::wire
