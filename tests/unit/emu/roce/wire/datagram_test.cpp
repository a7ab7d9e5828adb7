// Owns what may stand around a packet, and the ICRC of an example that another implementation made.
#include "emu/roce/wire/datagram.hpp"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "emu/roce/wire/headers.hpp"
#include "emu/roce/wire/icrc.hpp"

namespace weft::roce::wire {
namespace {

srd::Address ipv4(unsigned last) { return srd::Address::v4(10, 0, 0, last); }

srd::Address ipv6(unsigned last) {
  srd::Address address;
  address.bytes[0] = std::byte{0xFD};
  address.bytes[15] = static_cast<std::byte>(last);
  return address;
}

std::vector<std::byte> frame_of(const DatagramHeader& header, std::size_t payload) {
  std::vector<std::byte> frame(kEthernetHeader + kLargestIpUdp);
  frame.resize(write_datagram_header(header, sizeof(Bth) + payload,
                                     std::span(frame).first<kEthernetHeader + kLargestIpUdp>()));
  const std::size_t packet_at = frame.size();
  frame.resize(packet_at + sizeof(Bth) + payload, std::byte{0x5A});
  const auto all = std::span<const std::byte>(frame);
  const std::uint32_t crc =
      icrc(all.subspan(kEthernetHeader, packet_at - kEthernetHeader), all.subspan(packet_at));
  for (unsigned shift = 0; shift < 32; shift += 8) {
    frame.push_back(static_cast<std::byte>(crc >> shift));
  }
  return frame;
}

TEST(Crc32, IsThatOfEthernet) {
  constexpr std::string_view kDigits = "123456789";
  const auto bytes = std::as_bytes(std::span(kDigits));
  // The check value that catalogues of CRCs give for CRC-32.
  EXPECT_EQ(crc32(0, bytes), 0xCBF43926U);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_EQ(crc32(crc32(0, bytes.first(cut)), bytes.subspan(cut)), 0xCBF43926U);
  }
  // What Linux keeps as the state behind the eight lead bytes.
  const std::vector<std::byte> lead(8, std::byte{0xFF});
  EXPECT_EQ(~crc32(0, lead), 0xDEBB20E3U);
}

TEST(Datagram, ComesBackInBothFamilies) {
  for (const bool six : {false, true}) {
    DatagramHeader header;
    header.source = six ? ipv6(1) : ipv4(1);
    header.destination = six ? ipv6(2) : ipv4(2);
    header.traffic_class = 0xA3;
    header.hop_limit = 17;
    header.source_port = 0xC123;
    header.flow_label = six ? 0xABCDE : 0;
    header.identification = six ? 0 : 0x7777;
    auto frame = frame_of(header, 8);
    Datagram datagram;
    ASSERT_EQ(parse_datagram(frame, datagram), DatagramFault::none);
    EXPECT_EQ(datagram.header.source, header.source);
    EXPECT_EQ(datagram.header.destination, header.destination);
    EXPECT_EQ(datagram.header.traffic_class, header.traffic_class);
    EXPECT_EQ(datagram.header.hop_limit, header.hop_limit);
    EXPECT_EQ(datagram.header.source_port, header.source_port);
    EXPECT_EQ(datagram.header.flow_label, header.flow_label);
    EXPECT_EQ(datagram.header.identification, header.identification);
    EXPECT_TRUE(icrc_is_right(datagram));
    // A router counts hops down and marks congestion; an IPv6 one may set the flow label.
    std::byte* const ip = &frame[kEthernetHeader];
    ip[six ? 7 : 8] ^= std::byte{1};
    ip[1] ^= std::byte{0x10};
    if (six) {
      ip[3] ^= std::byte{0xFF};
    }
    const auto all = std::span<const std::byte>(frame);
    const std::size_t headers = six ? 48 : 28;
    EXPECT_EQ(icrc(all.subspan(kEthernetHeader, headers),
                   all.subspan(kEthernetHeader + headers, sizeof(Bth) + 8)),
              datagram.icrc);
  }
}

// By zlib: crc32(8 x ff, 6f ff ff ff, the rest of the header, ...).
TEST(Icrc, OfAnIpv6PacketIsWhatZlibSays) {
  DatagramHeader header;
  header.source = ipv6(1);
  header.destination = ipv6(2);
  header.source_port = 0xC001;
  std::array<std::byte, kEthernetHeader + kLargestIpUdp> outer{};
  ASSERT_EQ(write_datagram_header(header, 16, outer), outer.size());
  std::vector<std::byte> packet;
  for (unsigned i = 0; i < 16; ++i) {
    packet.push_back(static_cast<std::byte>(i));
  }
  EXPECT_EQ(icrc(std::span<const std::byte>(outer).subspan(kEthernetHeader), packet), 0xA3DA5B43U);
  const auto all = std::span<const std::byte>(packet);
  EXPECT_EQ(icrc(std::span<const std::byte>(outer).subspan(kEthernetHeader), all.first(12),
                 all.subspan(12, 1), all.subspan(13)),
            0xA3DA5B43U);
}

TEST(Datagram, IsRefusedForAReason) {
  DatagramHeader header;
  header.source = ipv4(1);
  header.destination = ipv4(2);
  const auto good = frame_of(header, 0);
  const auto fault = [&](std::size_t at, unsigned value) {
    auto frame = good;
    frame[at] = static_cast<std::byte>(value);
    Datagram datagram;
    return parse_datagram(frame, datagram);
  };
  EXPECT_EQ(fault(12, 0x81), DatagramFault::not_ip);
  EXPECT_EQ(fault(14, 0x46), DatagramFault::bad_ip);
  EXPECT_EQ(fault(15, 1), DatagramFault::bad_ip);  // the header's checksum
  EXPECT_EQ(fault(36, 0), DatagramFault::other_port);
  EXPECT_EQ(fault(39, 0), DatagramFault::bad_udp_length);
  for (std::size_t size = 0; size < good.size(); ++size) {
    Datagram datagram;
    EXPECT_NE(parse_datagram(std::span(good).first(size), datagram), DatagramFault::none);
  }
  auto padded = good;
  padded.resize(good.size() + 6);
  Datagram datagram;
  EXPECT_EQ(parse_datagram(padded, datagram), DatagramFault::none);
  EXPECT_EQ(datagram.packet.size(), sizeof(Bth));
}

TEST(Datagram, KnowsGroups) {
  EXPECT_FALSE(is_multicast(ipv4(1)));
  EXPECT_FALSE(is_multicast(ipv6(1)));
  srd::Address group = ipv4(1);
  group.bytes[12] = std::byte{239};
  EXPECT_TRUE(is_multicast(group));
  group = ipv6(1);
  group.bytes[0] = std::byte{0xFF};
  EXPECT_TRUE(is_multicast(group));
}

}  // namespace
}  // namespace weft::roce::wire
