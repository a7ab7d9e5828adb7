// Owns the comparison with what Linux sends: every captured packet parses, is written again byte
// for byte, and has the ICRC that we compute.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "emu/roce/wire/icrc.hpp"
#include "emu/roce/wire/packet.hpp"
#include "tests/unit/emu/roce/captures.hpp"

namespace weft::roce::wire {
namespace {

using ::testing::ElementsAreArray;

class Captured : public ::testing::TestWithParam<KnownCapture> {};

TEST_P(Captured, HasAllItsPackets) {
  EXPECT_EQ(roce_frames(GetParam().name).size(), GetParam().packets);
}

TEST_P(Captured, IsWrittenAgainByteForByte) {
  for (const auto& frame : roce_frames(GetParam().name)) {
    Datagram datagram;
    ASSERT_EQ(parse_datagram(frame, datagram), DatagramFault::none);
    EXPECT_TRUE(icrc_is_right(datagram));
    Packet packet;
    ASSERT_EQ(parse_packet(datagram.packet, 0, packet), PacketFault::none);
    EXPECT_EQ(packet.pad, 0);

    std::array<std::byte, kEthernetHeader + kLargestIpUdp> outer{};
    const std::size_t size = write_datagram_header(datagram.header, datagram.packet.size(), outer);
    std::vector<std::byte> again(outer.begin(), outer.begin() + static_cast<std::ptrdiff_t>(size));
    std::array<std::byte, kLargestHeader> headers{};
    ASSERT_EQ(write_headers(packet, headers.data()), packet.header_size);
    again.insert(again.end(), headers.begin(), headers.begin() + packet.header_size);
    const auto payload = datagram.packet.subspan(packet.header_size);
    again.insert(again.end(), payload.begin(), payload.end());
    const std::uint32_t crc = icrc(std::span(again).subspan(14, 28), std::span(again).subspan(42));
    for (unsigned shift = 0; shift < 32; shift += 8) {
      again.push_back(static_cast<std::byte>(crc >> shift));
    }
    EXPECT_THAT(again, ElementsAreArray(frame));
  }
}

// Every bit of one packet: the ICRC covers it, unless a router may change it.
TEST_P(Captured, IcrcCoversWhatRoutersLeaveAlone) {
  auto frame = roce_frames(GetParam().name).back();
  const auto may_change = [](std::size_t byte) {
    constexpr std::size_t kIp = 14;
    constexpr std::size_t kBth = 42;
    return byte < kIp || byte == kIp + 1 || byte == kIp + 8 || byte == kIp + 10 ||
           byte == kIp + 11 || byte == kBth - 2 || byte == kBth - 1 || byte == kBth + 4;
  };
  for (std::size_t bit = 0; bit < frame.size() * 8; ++bit) {
    frame[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
    const auto all = std::span<const std::byte>(frame);
    const std::size_t end = frame.size() - 4;
    std::uint32_t claimed = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      claimed |= std::to_integer<std::uint32_t>(frame[end + i]) << (8 * i);
    }
    EXPECT_EQ(icrc(all.subspan(14, 28), all.subspan(42, end - 42)) == claimed, may_change(bit / 8))
        << "bit " << bit;
    frame[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
  }
}

INSTANTIATE_TEST_SUITE_P(Linux, Captured, ::testing::ValuesIn(kCaptures), [](const auto& capture) {
  std::string name = capture.param.name;
  std::ranges::replace(name, '-', '_');
  return name;
});

// The counts that the programs imply.
TEST(Capture, HoldsTheExpectedOpcodes) {
  std::map<std::uint8_t, int> counts;
  for (const auto& frame : roce_frames("rxe61-rping-C2")) {
    Datagram datagram;
    ASSERT_EQ(parse_datagram(frame, datagram), DatagramFault::none);
    ++counts[std::to_integer<std::uint8_t>(datagram.packet[0])];
  }
  const std::map<std::uint8_t, int> expected = {{4, 8},  {12, 2},  {16, 2},
                                                {10, 2}, {17, 10}, {0x64, 5}};
  EXPECT_EQ(counts, expected);
}

// Linux draws the source port from the flow label, or from the queue pairs.
TEST(Capture, SourcePortsFollow) {
  EXPECT_EQ(source_port_of(0, 0x11, 0x11), 49441);
  EXPECT_EQ(source_port_of(0xB7B7A, 0, 0), 64343);
  EXPECT_EQ(source_port_of(0x45CD8, 0, 0), 56521);
}

}  // namespace
}  // namespace weft::roce::wire
