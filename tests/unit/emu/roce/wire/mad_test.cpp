// Owns connection management: captured messages parse, mean what their programs did, and are
// written again byte for byte.
#include "emu/roce/wire/mad.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "emu/roce/wire/packet.hpp"
#include "tests/unit/emu/roce/captures.hpp"

namespace weft::roce::wire {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

struct Captured {
  std::vector<std::byte> mad;
  CmMessage message;
};

std::vector<Captured> messages_of(const char* name) {
  std::vector<Captured> found;
  for (const auto& frame : roce_frames(name)) {
    Datagram datagram;
    Packet packet;
    EXPECT_EQ(parse_datagram(frame, datagram), DatagramFault::none);
    EXPECT_EQ(parse_packet(datagram.packet, 0, packet), PacketFault::none);
    if (packet.destination_qpn != 1) {
      continue;
    }
    EXPECT_EQ(packet.qkey, kGsiQkey);
    EXPECT_EQ(packet.payload_size, kMadSize);
    const auto payload = datagram.packet.subspan(packet.header_size);
    Captured& one = found.emplace_back();
    one.mad.assign(payload.begin(), payload.end());
    EXPECT_EQ(parse_cm(payload, one.message), MadFault::none);
  }
  return found;
}

std::vector<unsigned> kinds_of(const std::vector<Captured>& captured) {
  std::vector<unsigned> kinds;
  for (const Captured& one : captured) {
    kinds.push_back(static_cast<unsigned>(one.message.kind));
  }
  return kinds;
}

TEST(Mad, IsWrittenAgainByteForByte) {
  for (const char* const name : {"rxe61-rping-C2", "rxe61-ucmatose-udaddy"}) {
    for (const Captured& one : messages_of(name)) {
      std::array<std::byte, kMadSize> again{};
      write_cm(one.message, again);
      EXPECT_THAT(again, ElementsAreArray(one.mad)) << static_cast<unsigned>(one.message.kind);
    }
  }
}

TEST(Mad, TellsWhatRpingAskedFor) {
  const auto captured = messages_of("rxe61-rping-C2");
  // REQ, REP, RTU, DREQ, DREP.
  EXPECT_THAT(kinds_of(captured), ElementsAre(0x10, 0x13, 0x14, 0x15, 0x16));
  const CmMessage& request = captured[0].message;
  // The port spaces of RDMA_CM: 0x0106 TCP (port 7174, 0x1C06), 0x0111 UDP.
  EXPECT_EQ(request.service_id, 0x0000000001061C06U);
  EXPECT_EQ(request.starting_psn, 0xB676B8U);
  EXPECT_EQ(request.flow_label, 0xB7B7AU);
  EXPECT_EQ(request.remote_timeout, 0x14);
  EXPECT_EQ(request.local_timeout, 0x14);
  EXPECT_EQ(request.retry_count, 7);
  EXPECT_EQ(request.rnr_retry, 7);
  EXPECT_EQ(request.max_cm_retries, 15);
  EXPECT_EQ(request.hop_limit, 64);
  EXPECT_EQ(request.ack_timeout, 0x13);
  EXPECT_EQ(request.pkey, 0xFFFF);
  EXPECT_EQ(request.ca_guid >> 8, 0x505400FFFE0000U);  // the MAC address 52:54:00:00:00:...
  CmIpHeader header;
  ASSERT_TRUE(read_ip_header(request, header));
  EXPECT_EQ(header.ip_version, 4);
  EXPECT_EQ(header.source, request.local_gid);
  EXPECT_EQ(header.destination, request.remote_gid);
  CmMessage again = request;
  write_cm_ip_header(header, again);
  EXPECT_EQ(again.private_data, request.private_data);

  const CmMessage& reply = captured[1].message;
  EXPECT_EQ(reply.remote_id, request.local_id);
  EXPECT_EQ(reply.starting_psn, 0x44C6EFU);
  EXPECT_EQ(reply.ack_delay, 15);
  EXPECT_EQ(reply.rnr_retry, 7);
  EXPECT_EQ(reply.transaction, request.transaction);
  EXPECT_EQ(captured[2].message.remote_id, reply.local_id);
  EXPECT_EQ(captured[3].message.qpn,
            captured[3].message.local_id == request.local_id ? reply.qpn : request.qpn);
}

TEST(Mad, TellsWhatUdaddyAskedFor) {
  const auto captured = messages_of("rxe61-ucmatose-udaddy");
  // The same, and the question and answer of datagrams: SIDR_REQ, SIDR_REP.
  EXPECT_THAT(kinds_of(captured), ElementsAre(0x10, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18));
  const CmMessage& request = captured[5].message;
  const CmMessage& reply = captured[6].message;
  EXPECT_EQ(request.service_id, 0x0000000001111C06U);
  EXPECT_EQ(request.pkey, 0xFFFF);
  EXPECT_EQ(reply.local_id, request.local_id);
  EXPECT_EQ(reply.status, 0);
  EXPECT_EQ(reply.qpn, 0x14U);
  EXPECT_EQ(reply.qkey, 0x01234567U);
}

// What no capture holds, by offsets of the specification.
TEST(Mad, PutsARejectionWhereTheSpecificationHasIt) {
  CmMessage message;
  message.kind = CmKind::reject;
  message.local_id = 0x01020304;
  message.remote_id = 0x05060708;
  message.refused_kind = 1;
  message.reason = 28;
  message.information_length = 3;
  message.private_data[0] = std::byte{0x77};
  std::array<std::byte, kMadSize> mad{};
  write_cm(message, mad);
  // The message begins behind the 24 bytes of a MAD's header.
  EXPECT_EQ(mad[24 + 3], std::byte{4});
  EXPECT_EQ(mad[24 + 7], std::byte{8});
  EXPECT_EQ(mad[24 + 8], std::byte{0x40});
  EXPECT_EQ(mad[24 + 9], std::byte{6});
  EXPECT_EQ(mad[24 + 11], std::byte{28});
  EXPECT_EQ(mad[24 + 84], std::byte{0x77});
  CmMessage again;
  ASSERT_EQ(parse_cm(mad, again), MadFault::none);
  EXPECT_EQ(again.reason, 28);
  EXPECT_EQ(private_data_size(CmKind::reject), 148U);
}

TEST(Mad, IsRefusedForAReason) {
  auto mad = messages_of("rxe61-rping-C2").front().mad;
  CmMessage message;
  EXPECT_EQ(parse_cm(std::span(mad).first(255), message), MadFault::too_short);
  mad[17] = std::byte{0x19};
  EXPECT_EQ(parse_cm(mad, message), MadFault::unknown_kind);
  mad[1] = std::byte{0x03};
  EXPECT_EQ(parse_cm(mad, message), MadFault::not_cm);
}

}  // namespace
}  // namespace weft::roce::wire
