// Owns the order in which the loop between a Machine and its carrier does things.
#include "srd/run/poller.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace weft::srd {
namespace {

constexpr std::size_t kBurst = 4;

// A Machine that counts what it is asked, and has as much to send as a test wants.
class BusyMachine final : public Machine {
 public:
  void on_packet(TimePoint, const RxPacket&) override { ++packets; }
  void on_timeout(TimePoint) override {
    ++timeouts;
    packets_before_timeout = packets;
    deadline = kNever;
  }
  [[nodiscard]] bool next_transmit(TimePoint, TxPacket&) override { return to_send-- > 0; }
  [[nodiscard]] TimePoint next_timeout() const override { return deadline; }

  TimePoint deadline = kNever;
  int to_send = 0;
  std::size_t packets = 0;
  std::size_t packets_before_timeout = 0;
  int timeouts = 0;
};

// Packets without content; what is sent is remembered by its time.
class FullIo final : public PacketIo {
 public:
  [[nodiscard]] IoCapabilities capabilities() const override { return {.burst = kBurst}; }
  [[nodiscard]] IoCounters counters() const override { return {}; }
  [[nodiscard]] std::span<const RxPacket> receive() override {
    const std::size_t count = std::min(kBurst, waiting);
    waiting -= count;
    held = true;
    return {packets_.data(), count};
  }
  void release() override {
    held = false;
    ++released;
  }
  [[nodiscard]] std::size_t transmit(std::span<const TxPacket> packets) override {
    for (const TxPacket& packet : packets) {
      sent.push_back(packet.when);
    }
    return packets.size();
  }
  [[nodiscard]] std::size_t transmit_room() override { return kBurst; }
  [[nodiscard]] int wait_fd() const override { return -1; }
  [[nodiscard]] bool arm() override { return true; }
  void disarm() override {}

  std::size_t waiting = 0;
  bool held = false;  // received and not released
  int released = 0;
  std::vector<TimePoint> sent;

 private:
  std::array<RxPacket, kBurst> packets_{};
};

TEST(Poller, ReleasesBurstsInWhichThereIsNothingForIt) {
  BusyMachine machine;
  FullIo io;
  Poller<BusyMachine> poller(machine, io);
  EXPECT_EQ(poller.receive(TimePoint{}), 0U);
  EXPECT_FALSE(io.held);
  io.waiting = 1;
  EXPECT_EQ(poller.receive(TimePoint{}), 1U);
  EXPECT_FALSE(io.held);
}

// A process that had no core for a while finds answers waiting, and timers that they would stop.
TEST(Poller, LooksAtAllThatCameInDuringAPauseBeforeATimerCounts) {
  BusyMachine machine;
  FullIo io;
  Poller<BusyMachine> poller(machine, io);
  machine.deadline = TimePoint{} + Duration{1};
  io.waiting = 3 * kBurst + 1;
  while (machine.timeouts == 0) {
    (void)poller.poll(TimePoint{} + std::chrono::milliseconds{30});
  }
  EXPECT_EQ(machine.packets_before_timeout, 3 * kBurst + 1);
}

// A carrier keeps what it received until then, and of a burst of strangers' frames nothing may have
// been a packet.
TEST(Poller, GivesEveryBurstBack) {
  BusyMachine machine;
  FullIo io;
  Poller<BusyMachine> poller(machine, io);
  for (int round = 1; round <= 3; ++round) {
    (void)poller.receive(TimePoint{});
    EXPECT_EQ(io.released, round);
  }
}

// The counterpart: packets that never end must not keep a timer from counting.
TEST(Poller, DoesNotPutTimersOffForEver) {
  BusyMachine machine;
  FullIo io;
  Poller<BusyMachine> poller(machine, io);
  machine.deadline = TimePoint{} + Duration{1};
  for (int round = 0; round < 1000; ++round) {
    io.waiting = kBurst;
    (void)poller.poll(TimePoint{} + std::chrono::milliseconds{30});
  }
  EXPECT_EQ(machine.timeouts, 1);
}

TEST(Poller, TellsTheCarrierWhenAPacketLeft) {
  BusyMachine machine;
  FullIo io;
  Poller<BusyMachine> poller(machine, io);
  machine.to_send = 2;
  const TimePoint now = TimePoint{} + std::chrono::seconds{5};
  (void)poller.poll(now);
  EXPECT_EQ(io.sent, (std::vector<TimePoint>{now, now}));
}

// The stamp is written by another process: one from the future or of long ago would spoil round
// trips.
TEST(ArrivalOf, IsOnlyBelievedOfTheRecentPast) {
  const TimePoint now = TimePoint{} + std::chrono::seconds{100};
  RxPacket packet;
  EXPECT_EQ(arrival_of(now, packet), now);
  packet.arrived = now - std::chrono::milliseconds{7};
  EXPECT_EQ(arrival_of(now, packet), packet.arrived);
  packet.arrived = now + Duration{1};
  EXPECT_EQ(arrival_of(now, packet), now);
  packet.arrived = now - std::chrono::seconds{50};
  EXPECT_EQ(arrival_of(now, packet), now);
}

}  // namespace
}  // namespace weft::srd
