// Owns the tests of the virtual network: that it does the harm it is asked for, and no other.
#include <gtest/gtest.h>

#include "emu/world/network.hpp"
#include "emu/world/world.hpp"

namespace weft::world {
namespace {

using namespace std::chrono_literals;

class VirtualNetworkTest : public ::testing::Test {
 protected:
  VirtualNetworkTest() {
    network_.attach(address_of_host(0));
    network_.attach(address_of_host(1));
    network_.link().latency = 10us;
  }

  // From host 0 to host 1. `mark` fills the header, so that a test knows its packets again; the
  // byte after the first is the operation on the wire, by which the network tells kinds of packet.
  void send(TimePoint now, std::uint16_t path, std::byte mark, Packet kind = Packet::send) {
    srd::TxPacket packet;
    packet.to = address_of_host(1);
    packet.path = srd::PathId{path};
    packet.header_size = 64;
    packet.header.fill(mark);
    packet.header[1] = kind == Packet::ack ? std::byte{16} : std::byte{1};
    packet.payload[0] = payload_;
    network_.send(now, 0, packet);
  }
  // In the order of their arrival, up to and including `until`.
  std::vector<VirtualNetwork::InFlight> receive_all(TimePoint until) {
    std::vector<VirtualNetwork::InFlight> packets;
    VirtualNetwork::InFlight packet;
    while (network_.receive(until, packet)) {
      packets.push_back(packet);
    }
    return packets;
  }

  std::vector<std::byte> payload_ = std::vector<std::byte>(100, std::byte{7});
  VirtualNetwork network_{1};
  TimePoint start_ = time_at(1ms);
};

TEST_F(VirtualNetworkTest, DeliversAfterTheLatencyACopyOfThePacket) {
  send(start_, 0, std::byte{1});
  // The sender uses its memory again at once; what travels must be a copy.
  payload_.assign(100, std::byte{0});
  EXPECT_EQ(network_.next_event(), start_ + 10us);
  EXPECT_TRUE(receive_all(start_ + 9us).empty());
  const auto packets = receive_all(start_ + 10us);
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].bytes.size(), 164U);
  EXPECT_EQ(packets[0].bytes[163], std::byte{7});
  EXPECT_EQ(network_.next_event(), kNever);
}

TEST_F(VirtualNetworkTest, KeepsTheOrderOfAPathWhateverTheJitter) {
  network_.link().jitter = 50us;
  for (int i = 0; i < 100; ++i) {
    send(start_ + Duration{i}, 3, static_cast<std::byte>(i));
  }
  const auto packets = receive_all(start_ + 1ms);
  ASSERT_EQ(packets.size(), 100U);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(packets[static_cast<std::size_t>(i)].bytes[0], static_cast<std::byte>(i));
  }
}

TEST_F(VirtualNetworkTest, ScriptsCountOnlyWhatTheyName) {
  network_.lose_next(Packet::send, 1, 2);
  send(start_, 0, std::byte{0});
  send(start_, 0, std::byte{9}, Packet::ack);
  send(start_, 0, std::byte{1});
  send(start_, 0, std::byte{2});
  send(start_, 0, std::byte{3});
  const auto packets = receive_all(start_ + 1ms);
  ASSERT_EQ(packets.size(), 4U);
  EXPECT_EQ(packets[3].bytes[0], std::byte{3});
  EXPECT_EQ(network_.counts().lost, 1U);
}

TEST_F(VirtualNetworkTest, TrimsCorruptsDuplicatesAndMarks) {
  network_.add({.kind = Packet::send, .action = Action::trim});
  send(start_, 0, std::byte{0});
  network_.add({.kind = Packet::send, .action = Action::corrupt_payload});
  send(start_, 0, std::byte{1});
  network_.add({.kind = Packet::send, .action = Action::duplicate});
  send(start_, 0, std::byte{2});
  network_.add({.kind = Packet::send, .action = Action::mark});
  send(start_, 0, std::byte{3});
  const auto packets = receive_all(start_ + 1ms);
  ASSERT_EQ(packets.size(), 5U);
  EXPECT_TRUE(packets[0].trimmed);
  EXPECT_EQ(packets[0].bytes.size(), 64U);
  EXPECT_FALSE(packets[1].genuine);
  EXPECT_EQ(network_.counts().duplicated, 1U);
  EXPECT_EQ(network_.counts().marked, 1U);
}

TEST_F(VirtualNetworkTest, HealsWholly) {
  network_.kill_path(0, 0);
  network_.partition(0, 1);
  network_.link().loss = 1;
  send(start_, 0, std::byte{0});
  EXPECT_EQ(network_.in_flight(), 0U);
  network_.heal();
  send(start_, 0, std::byte{0});
  EXPECT_EQ(network_.in_flight(), 1U);
}

TEST_F(VirtualNetworkTest, ASlowPortMakesAQueueThatMarksAndDrops) {
  network_.link().rate = Rate::gbps(1);
  network_.link().mark_above = 1000;
  network_.link().queue_limit = 3000;
  srd::TxPacket packet;
  // Two senders, one receiving port: what arrives at twice its rate must wait.
  network_.attach(address_of_host(2));
  for (int i = 0; i < 100; ++i) {
    for (const std::uint32_t from : {0U, 2U}) {
      packet.to = address_of_host(1);
      packet.header_size = 64;
      packet.payload[0] = payload_;
      packet.path = srd::PathId{0};
      network_.send(start_, from, packet);
    }
  }
  const std::size_t delivered = receive_all(start_ + 1s).size();
  const NetworkCounts& counts = network_.counts();
  EXPECT_GT(counts.marked, 20U);
  EXPECT_GT(counts.lost, 20U);
  // No packet is both, and none is neither.
  EXPECT_EQ(counts.sent, counts.lost + delivered);
}

// A port serves what is there: a packet on a short path does not queue behind one on a long path.
TEST_F(VirtualNetworkTest, PacketsQueueInTheOrderInWhichTheyArrive) {
  network_.link().rate = Rate::gbps(100);
  network_.link().path_skew = 1us;
  network_.link().queue_limit = 3000;
  send(start_, 200, std::byte{1});
  send(start_, 0, std::byte{2});
  const auto packets = receive_all(start_ + 1s);
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(packets[0].path, srd::PathId{0});
}

TEST_F(VirtualNetworkTest, PacketsToNobodyAreLost) {
  srd::TxPacket packet;
  packet.to = address_of_host(77);
  packet.header_size = 64;
  network_.send(start_, 0, packet);
  EXPECT_EQ(network_.counts().lost, 1U);
}

}  // namespace
}  // namespace weft::world
