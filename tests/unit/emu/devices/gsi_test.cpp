// Tests of queue pair 1: what leaves it is what it takes, and nothing else is taken.
//
// Queue pair 1 (GSI, the general services interface) carries the messages of management, each in
// one datagram of 256 bytes. It belongs to the device and not to a program: behind it are two
// agents, one for connection management and one for all other classes, and the test is both.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "emu/devices/rxe/device.hpp"
#include "emu/roce/wire/mad.hpp"
#include "emu/roce/wire/packet.hpp"

namespace weft::devices::rxe {
namespace {

namespace wire = roce::wire;

const srd::Address kOwn = srd::Address::v4(10, 0, 0, 1);
const srd::Address kPeer = srd::Address::v4(10, 0, 0, 2);

// Stands for the connection manager: keeps the last message, and has one to send if a test wants
// it.
struct Agent final : kernel::ManagementAgent {
  void on_message(TimePoint /*now*/, const kernel::ManagementArrival& arrival) override {
    heard.assign(arrival.message.begin(), arrival.message.end());
    heard_from = arrival.from;
    heard_at = arrival.to;
    heard_qpn = arrival.from_qpn;
  }
  void on_timeout(TimePoint /*now*/) override { ++timeouts; }
  bool next_message(kernel::ManagementMessage& out) override {
    if (!pending) {
      return false;
    }
    out = *pending;
    pending.reset();
    return true;
  }
  [[nodiscard]] TimePoint next_timeout() const override { return pending ? TimePoint{} : deadline; }

  std::vector<std::byte> heard;
  srd::Address heard_from;
  srd::Address heard_at;
  std::uint32_t heard_qpn = 0;
  int timeouts = 0;
  std::optional<kernel::ManagementMessage> pending;
  TimePoint deadline = kNever;
};

class GsiTest : public ::testing::Test {
 protected:
  GsiTest() {
    device.management()->set_agent(&agent);
    device.management()->set_other_agent(&other);
  }

  // A packet as a carrier hands it over: headers around it in front, four bytes behind. Its message
  // is one of connection management, or of the class.
  void arrive(const wire::Packet& headers, std::size_t payload,
              std::uint8_t management_class = wire::kCmClass) {
    std::vector<std::byte> packet(wire::kLargestHeader);
    packet.resize(wire::write_headers(headers, packet.data()));
    const std::size_t front_size = packet.size();
    packet.resize(front_size + payload, std::byte{7});
    if (payload >= 4) {
      packet[front_size] = std::byte{1};
      packet[front_size + 1] = static_cast<std::byte>(management_class);
      packet[front_size + 2] = std::byte{2};
      packet[front_size + 3] = std::byte{3};
    }
    std::array<std::byte, wire::kEthernetHeader + wire::kLargestIpUdp> outer{};
    const wire::DatagramHeader around{.source = kPeer, .destination = kOwn};
    const std::size_t front = wire::write_datagram_header(around, packet.size(), outer);
    std::vector<std::byte> frame(outer.begin(), outer.begin() + static_cast<std::ptrdiff_t>(front));
    frame.insert(frame.end(), packet.begin(), packet.end());
    frame.resize(frame.size() + wire::kIcrcSize);
    srd::RxPacket rx;
    rx.from = kPeer;
    rx.envelope_size = static_cast<std::uint8_t>(front);
    rx.bytes = std::span(frame).subspan(front);
    device.on_packet(now, rx);
  }
  // What a message of a well-behaved peer looks like.
  static wire::Packet message_headers() {
    wire::Packet headers;
    headers.opcode = wire::opcode_of(wire::Transport::ud, wire::Operation::send_only);
    headers.destination_qpn = 1;
    headers.qkey = wire::kGsiQkey;
    headers.source_qpn = 1;
    return headers;
  }

  Abilities abilities;
  RxeDevice device{abilities, engine_config(abilities, kOwn, {1U << 16}, {.mtu = 9000}, 1)};
  Agent agent;
  Agent other;  // of all other classes
  TimePoint now = time_at(std::chrono::seconds{1});
};

TEST_F(GsiTest, MessagesArrive) {
  arrive(message_headers(), wire::kMadSize);
  ASSERT_EQ(agent.heard.size(), wire::kMadSize);
  EXPECT_EQ(agent.heard[255], std::byte{7});
  EXPECT_EQ(agent.heard_from, kPeer);
  EXPECT_EQ(agent.heard_at, kOwn);
}

TEST_F(GsiTest, OtherClassesHaveAnotherAgent) {
  wire::Packet headers = message_headers();
  headers.source_qpn = 77;
  arrive(headers, wire::kMadSize, 0x32);
  EXPECT_TRUE(agent.heard.empty());
  ASSERT_EQ(other.heard.size(), wire::kMadSize);
  EXPECT_EQ(other.heard_qpn, 77U);
  device.management()->set_other_agent(nullptr);
  other.heard.clear();
  arrive(headers, wire::kMadSize, 0x32);
  EXPECT_TRUE(other.heard.empty());
}

TEST_F(GsiTest, BothAgentsSend) {
  agent.pending = other.pending = kernel::ManagementMessage{};
  other.pending->to_qpn = 0x123456;
  srd::TxPacket out;
  std::vector<std::uint32_t> destinations;
  while (device.next_transmit(now, out)) {
    wire::Packet headers;
    ASSERT_EQ(wire::parse_packet(std::span(out.header).first(out.header_size), 0, headers),
              wire::PacketFault::none);
    destinations.push_back(headers.destination_qpn);
  }
  EXPECT_EQ(destinations, (std::vector<std::uint32_t>{1, 0x123456}));
  other.deadline = now + std::chrono::milliseconds{5};
  EXPECT_EQ(device.next_timeout(), other.deadline);
  device.on_timeout(other.deadline);
  EXPECT_EQ(other.timeouts, 1);
  EXPECT_EQ(agent.timeouts, 0);
}

// Another Q_Key; four bytes short; empty; to queue pair 0, which is InfiniBand's subnet management.
// And with nobody to hear it, a good message is dropped.
TEST_F(GsiTest, WhatIsNoMessageDoesNot) {
  wire::Packet headers = message_headers();
  headers.qkey = 0x11111111;
  arrive(headers, wire::kMadSize);
  arrive(message_headers(), wire::kMadSize - 4);
  arrive(message_headers(), 0);
  headers = message_headers();
  headers.destination_qpn = 0;
  arrive(headers, wire::kMadSize);
  EXPECT_TRUE(agent.heard.empty());
  device.management()->set_agent(nullptr);
  arrive(message_headers(), wire::kMadSize);
  EXPECT_TRUE(agent.heard.empty());
}

TEST_F(GsiTest, MessagesLeave) {
  kernel::ManagementMessage message;
  message.to = kPeer;
  message.traffic_class = 0x28;
  message.bytes[200] = std::byte{9};
  agent.pending = message;
  EXPECT_LE(device.next_timeout(), now);
  srd::TxPacket out;
  ASSERT_TRUE(device.next_transmit(now, out));
  EXPECT_EQ(out.to, kPeer);
  // The traffic class's upper six bits.
  EXPECT_EQ(out.dscp, 0x28 >> 2);
  // The message is a part of the header, so no memory has to stay until the packet has left.
  EXPECT_EQ(out.payload_size(), 0U);
  wire::Packet headers;
  ASSERT_EQ(wire::parse_packet(std::span(out.header).first(out.header_size), 0, headers),
            wire::PacketFault::none);
  EXPECT_EQ(headers.destination_qpn, 1U);
  EXPECT_EQ(headers.qkey, wire::kGsiQkey);
  EXPECT_EQ(headers.payload_size, wire::kMadSize);
  EXPECT_EQ(out.header[headers.header_size + 200U], std::byte{9});
  EXPECT_FALSE(device.next_transmit(now, out));
  EXPECT_EQ(device.next_timeout(), kNever);
}

// The agent's deadlines are the device's: nobody else wakes the thread.
TEST_F(GsiTest, TimersAreServed) {
  agent.deadline = now + std::chrono::milliseconds{5};
  EXPECT_EQ(device.next_timeout(), agent.deadline);
  device.on_timeout(now);
  EXPECT_EQ(agent.timeouts, 0);
  device.on_timeout(agent.deadline);
  EXPECT_EQ(agent.timeouts, 1);
}

// Three addresses: the IPv4 one is also a GID of its own, in the middle.
TEST_F(GsiTest, SaysWhatTheManagerAsks) {
  const auto facts = device.management()->facts();
  EXPECT_EQ(facts.attachment, 1);
  EXPECT_EQ(facts.guid, 0x00000AFFFE000001U);
  ASSERT_EQ(facts.addresses.size(), 3U);
  EXPECT_EQ(facts.addresses[1], kOwn);
}

}  // namespace
}  // namespace weft::devices::rxe
