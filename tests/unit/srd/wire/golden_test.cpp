// Owns the tests that each header lies on the wire exactly as docs/wire.md section 3 says. The
// bytes (golden.hpp) were computed from that document by other code than ours: a change that
// writing and parsing make alike still fails here. Most fields have values of their own, so that
// two that changed places show.
#include "tests/unit/srd/wire/golden.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "srd/wire/parse.hpp"

namespace weft::srd::wire {
namespace {

using test::golden;
using Bytes = std::vector<std::byte>;

const Bytes kWeft{std::byte{'w'}, std::byte{'e'}, std::byte{'f'}, std::byte{'t'}};

CommonHeader common(PacketType type, unsigned flags, std::uint8_t attempt = 0,
                    std::uint16_t path = 0x2A, std::uint32_t destination_life = 0x0A0B0C0D) {
  CommonHeader header{};
  header.version = kVersion;
  header.type = static_cast<std::uint8_t>(type);
  header.flags = static_cast<std::uint8_t>(flags);
  header.attempt = attempt;
  header.destination_attachment = 0x1122;
  header.destination_qpn = 0x334455;
  header.source_qpn = 0x667788;
  header.source_attachment = 0x99AA;
  header.path = path;
  header.source_life = 0x01020304;
  header.destination_life = destination_life;
  return header;
}

DataHeader data(const CommonHeader& outer, std::uint32_t psn, std::uint16_t back,
                std::uint16_t payload_length, std::uint32_t send_time) {
  DataHeader header{};
  header.common = outer;
  header.psn = psn;
  header.back = back;
  header.payload_length = payload_length;
  header.send_time = send_time;
  return header;
}

template <class Header>
Bytes sealed(const Header& header, const Bytes& tail = {}, const Bytes& payload = {}) {
  const std::size_t size = sizeof header + tail.size();
  Bytes bytes(size + payload.size());
  store(bytes.data(), header);
  std::ranges::copy(tail, bytes.begin() + sizeof header);
  std::ranges::copy(payload, bytes.begin() + static_cast<std::ptrdiff_t>(size));
  seal(std::span{bytes}.first(size), payload);
  return bytes;
}

// [wire 3.4]
TEST(Golden, Send) {
  DataHeader header =
      data(common(PacketType::send, kAckRequested | kImmediate, 3), 0xFFFFFFFE, 5, 4, 0xDEADBEEF);
  header.key = 0x80010203;
  header.immediate = 0xCAFEF00D;
  header.message_length = 4;
  EXPECT_EQ(sealed(header, {}, kWeft), golden("send"));
}

TEST(Golden, Write) {
  DataHeader header =
      data(common(PacketType::write, kImmediate | kLastOfMessage), 0x10203040, 1983, 4, 1);
  header.message = 0x55667788;
  header.key = 0xABCDEF;
  header.remote_address = 0x1122334455667788;
  header.immediate = 0xA5A5A5A5;
  header.message_length = kMaxMessageLength;
  EXPECT_EQ(sealed(header, {}, kWeft), golden("write"));
}

TEST(Golden, ReadRequest) {
  DataHeader header = data(common(PacketType::read_request, kAckRequested, 0, 0x2A, 0), 7, 0, 0, 2);
  header.message = 9;
  header.key = 0x01FFFF;
  header.remote_address = 0xFFFFFFFFFFFFF000;
  header.message_length = 4096;
  EXPECT_EQ(sealed(header), golden("read_request"));
}

TEST(Golden, ReadResponse) {
  DataHeader header = data(common(PacketType::read_response, kLastOfMessage), 8, 1, 4, 3);
  header.message = 9;
  header.remote_address = 0x1000;
  header.message_length = 0x1004;
  EXPECT_EQ(sealed(header, {}, kWeft), golden("read_response"));
}

TEST(Golden, FailedReadResponse) {
  DataHeader header = data(common(PacketType::read_response, kReadFailed), 9, 2, 0, 4);
  header.message = 9;
  header.key = 5;
  EXPECT_EQ(sealed(header), golden("failed_read_response"));
}

TEST(Golden, Probe) {
  const DataHeader header =
      data(common(PacketType::probe, kAckRequested, 0, 255), 0x12345678, 0, 0, 5);
  EXPECT_EQ(sealed(header), golden("probe"));
}

// [wire 3.5, 3.6]
TEST(Golden, Ack) {
  AckHeader header{};
  header.common =
      common(PacketType::ack, kEchoValid | kEchoCongested | kEchoProbe | kCreditValid, 200, 7);
  header.echo_psn = 0x11;
  header.cumulative = 0x22;
  header.echo_send_time = 0x33;
  header.credit = 0x44;
  header.sack_words = 2;
  header.results = 3;
  header.marked = 0x66;
  header.wait = 0x77;
  Bytes tail(2 * sizeof(big_uint64_buf_t) + 3 * sizeof(ResultEntry));
  store(tail.data(), big_uint64_buf_t{0x8000000000000001});
  store(tail.data() + 8, big_uint64_buf_t{0x0123456789ABCDEF});
  ResultEntry entry{};
  entry.psn = 0x23;
  entry.code = 3;
  store(tail.data() + 16, entry);
  entry.psn = 0x24;
  entry.code = kResultTrimmed;
  entry.attempt = 2;
  store(tail.data() + 24, entry);
  entry.psn = 0x25;
  entry.code = kResultDeferred;
  entry.attempt = 0;
  store(tail.data() + 32, entry);
  EXPECT_EQ(sealed(header, tail), golden("ack"));
}

// [wire 3.7]
TEST(Golden, StaleLife) {
  StaleLife header{};
  header.common = common(PacketType::stale_life, 0);
  header.refused_life = 0x0E0F1011;
  EXPECT_EQ(sealed(header), golden("stale_life"));
}

// [wire 3.8]
TEST(Golden, CreditRequest) {
  CreditRequest header{};
  header.common = common(PacketType::credit_request, 0);
  header.demand = 0xFFFFFF00;
  EXPECT_EQ(sealed(header), golden("credit_request"));
}

// And back: what the accessors of a parsed packet say about the same bytes.
TEST(Golden, EveryPacketParsesAndVerifies) {
  for (const test::Golden& packet : test::kGolden) {
    const Bytes bytes = test::from_hex(packet.hex);
    const ParsedPacket parsed = parse_packet(bytes);
    ASSERT_EQ(parsed.reason(), DropReason::none)
        << packet.name << ' ' << to_string(parsed.reason());
    EXPECT_EQ(verify_checksum(parsed, {}, true), DropReason::none) << packet.name;
    const CommonHeader header = parsed.common();
    EXPECT_EQ(header.destination_attachment.value(), 0x1122U);
    EXPECT_EQ(header.destination_qpn.value(), 0x334455U);
    EXPECT_EQ(header.source_qpn.value(), 0x667788U);
    EXPECT_EQ(header.source_attachment.value(), 0x99AAU);
    EXPECT_EQ(header.source_life.value(), 0x01020304U);
    // Types up to 5 carry data or ask for it, the others are control packets.
    EXPECT_EQ(parsed.has_data_header(), header.type <= 5) << packet.name;
  }
}

TEST(Golden, ParsedDataPacket) {
  const Bytes bytes = golden("write");
  const ParsedPacket parsed = parse_packet(bytes);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.type(), PacketType::write);
  EXPECT_TRUE(parsed.has(kImmediate));
  EXPECT_TRUE(parsed.has(kLastOfMessage));
  EXPECT_FALSE(parsed.has(kAckRequested));
  const DataHeader header = parsed.data();
  EXPECT_EQ(header.psn.value(), 0x10203040U);
  EXPECT_EQ(header.back.value(), 1983U);
  EXPECT_EQ(header.message.value(), 0x55667788U);
  EXPECT_EQ(header.key.value(), 0xABCDEFU);
  EXPECT_EQ(header.remote_address.value(), 0x1122334455667788U);
  EXPECT_EQ(header.immediate.value(), 0xA5A5A5A5U);
  EXPECT_EQ(Bytes(parsed.payload().begin(), parsed.payload().end()), kWeft);
}

TEST(Golden, ParsedAck) {
  const Bytes bytes = golden("ack");
  const ParsedPacket parsed = parse_packet(bytes);
  ASSERT_TRUE(parsed.ok());
  ASSERT_EQ(parsed.ack().sack_words, 2);
  EXPECT_EQ(parsed.sack_word(0), 0x8000000000000001U);
  EXPECT_EQ(parsed.sack_word(1), 0x0123456789ABCDEFU);
  ASSERT_EQ(parsed.ack().results, 3);
  EXPECT_EQ(parsed.result(0).psn.value(), 0x23U);
  EXPECT_EQ(parsed.result(0).code, 3);
  EXPECT_EQ(parsed.result(1).code, kResultTrimmed);
  EXPECT_EQ(parsed.result(1).attempt, 2);
  EXPECT_EQ(parsed.result(2).psn.value(), 0x25U);
  EXPECT_EQ(parsed.common().attempt, 200);
}

TEST(Golden, ParsedControlPackets) {
  const Bytes stale = golden("stale_life");
  ASSERT_TRUE(parse_packet(stale).ok());
  EXPECT_EQ(parse_packet(stale).stale_life().refused_life.value(), 0x0E0F1011U);
  const Bytes credit = golden("credit_request");
  ASSERT_TRUE(parse_packet(credit).ok());
  EXPECT_EQ(parse_packet(credit).credit_request().demand.value(), 0xFFFFFF00U);
}

TEST(Header, LoadRefusesWhatIsTooShort) {
  const Bytes bytes = golden("probe");
  DataHeader header;
  ASSERT_TRUE(load(bytes, header));
  EXPECT_EQ(header.psn.value(), 0x12345678U);
  EXPECT_FALSE(load(std::span{bytes}.first(sizeof header - 1), header));
}

TEST(Header, LargestAckFitsWhereHeadersAreWritten) { EXPECT_EQ(kLargestAck, 504U); }

}  // namespace
}  // namespace weft::srd::wire
