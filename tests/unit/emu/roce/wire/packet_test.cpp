// Owns the layout of each opcode, by tables and bytes that were written from the specification and
// not by our writer.
#include "emu/roce/wire/packet.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace weft::roce::wire {
namespace {

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Opcode -> bytes of headers, BTH included.
// BTH 12, RETH 16, AtomicETH 28, AETH and immediate data 4, DETH 8, AtomicAckETH 8.
const std::map<int, std::size_t> kSizes = {
    {0x00, 12}, {0x01, 12}, {0x02, 12}, {0x03, 16}, {0x04, 12}, {0x05, 16}, {0x06, 28}, {0x07, 12},
    {0x08, 12}, {0x09, 16}, {0x0A, 28}, {0x0B, 32}, {0x0C, 28}, {0x0D, 16}, {0x0E, 12}, {0x0F, 16},
    {0x10, 16}, {0x11, 16}, {0x12, 24}, {0x13, 40}, {0x14, 40}, {0x16, 16}, {0x17, 16}, {0x1D, 28},
    {0x20, 12}, {0x21, 12}, {0x22, 12}, {0x23, 16}, {0x24, 12}, {0x25, 16}, {0x26, 28}, {0x27, 12},
    {0x28, 12}, {0x29, 16}, {0x2A, 28}, {0x2B, 32}, {0x64, 20}, {0x65, 24}, {0x81, 28}};

TEST(Packet, KnowsTheseOpcodesAndNoOthers) {
  for (int opcode = 0; opcode < 256; ++opcode) {
    const auto known = kSizes.find(opcode);
    EXPECT_EQ(traits_of(static_cast<std::uint8_t>(opcode)) != 0, known != kSizes.end()) << opcode;
    if (known != kSizes.end()) {
      EXPECT_EQ(header_size_of(static_cast<std::uint8_t>(opcode)), known->second) << opcode;
    }
  }
}

// Every byte of every header is where the specification has it.
TEST(Packet, ReadsEachHeader) {
  const std::string bth = "80801234c0abcdef80010203";  // with another opcode in front
  const std::string reth = "1122334455667788deadbeef00010004";
  const std::string atomic = "1122334455667788deadbeef0102030405060708a1a2a3a4a5a6a7a8";
  const auto parsed = [](const std::string& text) {
    Packet packet;
    EXPECT_EQ(parse_packet(from_hex(text), 0, packet), PacketFault::none) << text;
    return packet;
  };
  const auto with = [&](const char* opcode) { return opcode + bth.substr(2); };

  Packet packet = parsed(with("04") + "aabbccdd");
  EXPECT_TRUE(packet.solicited && !packet.migrated && packet.forward_congestion &&
              packet.backward_congestion && packet.ack_request);
  EXPECT_EQ(packet.pkey, 0x1234);
  EXPECT_EQ(packet.destination_qpn, 0xABCDEFU);
  EXPECT_EQ(packet.psn, 0x010203U);
  EXPECT_EQ(packet.header_size, 12);
  EXPECT_EQ(packet.payload_size, 4U);

  packet = parsed(with("0b") + reth + "01000000" + "aabbccdd");
  EXPECT_EQ(packet.address, 0x1122334455667788U);
  EXPECT_EQ(packet.rkey, 0xDEADBEEFU);
  EXPECT_EQ(packet.length, 0x00010004U);
  EXPECT_EQ(packet.immediate, 1U);  // its first byte in memory is the first one on the wire

  packet = parsed(with("13") + atomic);
  EXPECT_EQ(packet.address, 0x1122334455667788U);
  EXPECT_EQ(packet.rkey, 0xDEADBEEFU);
  EXPECT_EQ(packet.swap_or_add, 0x0102030405060708U);
  EXPECT_EQ(packet.compare, 0xA1A2A3A4A5A6A7A8U);

  packet = parsed(with("12") + "1f0a0b0c" + "0102030405060708");
  EXPECT_EQ(packet.syndrome, 0x1F);
  EXPECT_EQ(packet.msn, 0x0A0B0CU);
  EXPECT_EQ(packet.original, 0x0102030405060708U);

  packet = parsed(with("65") + "8001000000000011" + "78563412");
  EXPECT_EQ(packet.qkey, 0x80010000U);
  EXPECT_EQ(packet.source_qpn, 0x11U);
  EXPECT_EQ(packet.immediate, 0x12345678U);

  packet = parsed(with("17") + "00002a05");
  EXPECT_EQ(packet.invalidate, 0x2A05U);
}

TEST(Packet, IsWrittenAsItWasRead) {
  for (const auto& [opcode, size] : kSizes) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<std::byte>(i * 37 + 11);
    }
    bytes[0] = static_cast<std::byte>(opcode);
    bytes[1] = std::byte{0xC0};   // no pad, version 0
    bytes[4] &= std::byte{0xC0};  // reserved bits of BTH
    bytes[8] &= std::byte{0x80};
    if (opcode == 0x64 || opcode == 0x65) {
      bytes[16] = std::byte{};  // reserved in DETH
    }
    if (opcode == 0x81) {
      std::fill(bytes.begin() + 12, bytes.end(), std::byte{});
    }
    Packet packet;
    ASSERT_EQ(parse_packet(bytes, 0, packet), PacketFault::none) << opcode;
    std::vector<std::byte> again(kLargestHeader);
    again.resize(write_headers(packet, again.data()));
    EXPECT_EQ(again, bytes) << opcode;
  }
}

TEST(Packet, IsRefusedForAReason) {
  const auto fault = [](const std::string& text, std::size_t more = 0) {
    Packet packet;
    return parse_packet(from_hex(text), more, packet);
  };
  EXPECT_EQ(fault("0400ffff0000000100000a"), PacketFault::too_short);
  EXPECT_EQ(fault("0600ffff0000000100000001"
                  "00000000"),
            PacketFault::too_short);
  EXPECT_EQ(fault("0401ffff0000000100000001"), PacketFault::bad_version);
  EXPECT_EQ(fault("1500ffff0000000100000001"), PacketFault::unknown_opcode);
  EXPECT_EQ(fault("4400ffff0000000100000001"), PacketFault::unknown_opcode);
  EXPECT_EQ(fault("0400ffff0000000100000001"
                  "aa"),
            PacketFault::unaligned);
  EXPECT_EQ(fault("0400ffff0000000100000001", 3), PacketFault::unaligned);
  EXPECT_EQ(fault("0410ffff0000000100000001"), PacketFault::bad_pad);
  EXPECT_EQ(fault("1100ffff0000000100000001"
                  "1f000001"
                  "00000000"),
            PacketFault::no_payload);
  EXPECT_EQ(fault("0430ffff0000000100000001", 4), PacketFault::none);
}

TEST(Packet, CountsPadOutOfThePayload) {
  Packet packet;
  ASSERT_EQ(parse_packet(from_hex("0430ffff0000000100000001"
                                  "aa000000"),
                         0, packet),
            PacketFault::none);
  EXPECT_EQ(packet.payload_size, 1U);
  EXPECT_EQ(pad_of(0), 0);
  EXPECT_EQ(pad_of(1), 3);
  EXPECT_EQ(pad_of(3), 1);
  EXPECT_EQ(pad_of(4), 0);
}

}  // namespace
}  // namespace weft::roce::wire
