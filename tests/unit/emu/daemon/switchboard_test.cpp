// Owns the tests of turns: how much of a ring is forwarded before it is the next one's turn. It is
// 32 frames (a burst), or fewer if one of them is bad.
#include "emu/daemon/switchboard.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "srd/io/ring_port.hpp"
#include "tests/unit/emu/daemon/roce_frame.hpp"
#include "tests/unit/emu/daemon/two_hosts.hpp"

namespace weft::daemon {
namespace {

constexpr std::size_t kRing = std::size_t{1} << 16;
constexpr std::size_t kFrame = 100;
constexpr std::size_t kFrames = 100;  // several bursts

// One process on each of two hosts, of which the test plays the first: it writes into its ring.
class SwitchboardTest : public TwoHosts {
 protected:
  SwitchboardTest() {
    for (std::size_t host = 0; host < 2; ++host) {
      auto slot = std::make_unique<Slot>();
      slot->nic = plant_->nics()[host].get();
      slot->id = 1;
      slot->ring_bytes = kRing;
      auto memory = srd::RingPort::create_memory(kRing);
      slot->port = *srd::RingPort::open(memory->get(), kRing, 0, kFrame, {});
      processes_.push_back(*srd::RingPort::open(memory->get(), kRing, 1, kFrame, {}));
      plant_->put(std::move(slot));
    }
  }
  [[nodiscard]] Slot& sender() const { return *plant_->slots()[0]; }
  [[nodiscard]] srd::Address address(std::size_t host) const {
    return plant_->nics()[host]->address;
  }
  void write(const std::vector<std::byte>& frame) {
    std::byte* place = processes_[0].tx().reserve(frame.size());
    ASSERT_NE(place, nullptr);
    std::memcpy(place, frame.data(), frame.size());
    processes_[0].tx().commit(frame.size(), {});
  }
  [[nodiscard]] std::size_t pump() { return switchboard_->pump(TimePoint{}, sender()); }

  std::vector<srd::RingPort> processes_;
};

TEST_F(SwitchboardTest, ABurstOfGoodFramesIsOneTurn) {
  for (std::size_t i = 0; i < kFrames; ++i) {
    write(roce_frame(address(0), address(1), 1U << 16, kFrame));
  }
  EXPECT_EQ(pump(), 32U);
  EXPECT_EQ(switchboard_->counters().frames, 32U);
}

// Whatever makes it a bad one. So a process that sends only such frames holds the others up for one
// frame in a round, and not for a burst.
TEST_F(SwitchboardTest, ATurnEndsWithAFrameThatIsDropped) {
  srd::Address nobody = address(1);
  nobody.bytes[14] = std::byte{99};
  const std::vector<std::pair<FrameDrop, std::vector<std::byte>>> bad{
      {FrameDrop::wrong_source, roce_frame(nobody, address(1), 1U << 16, kFrame)},
      {FrameDrop::no_nic, roce_frame(address(0), nobody, 1U << 16, kFrame)},
      {FrameDrop::no_process, roce_frame(address(0), address(1), 2U << 16, kFrame)},
      {FrameDrop::malformed, std::vector<std::byte>(kFrame)},
  };
  for (const auto& [reason, frame] : bad) {
    for (int i = 0; i < 3; ++i) {
      write(frame);
    }
    for (std::uint64_t i = 1; i <= 3; ++i) {
      EXPECT_EQ(pump(), 1U) << to_string(reason);
      EXPECT_EQ(dropped(reason), i) << to_string(reason);
    }
    EXPECT_EQ(pump(), 0U);
  }
}

// A frame that is dropped because its receiver has no room is no fault of the sender's. Here the
// receiver is a member of a group that never reads: it loses its copies, and the sender no turns.
TEST_F(SwitchboardTest, AFullReceiverEndsNobodysTurn) {
  const srd::Address group = srd::Address::v4(239, 1, 2, 3);
  ASSERT_TRUE(plant_->groups().join(group, *plant_->slots()[1]));
  const auto frame = roce_frame(address(0), group, RoceCodec::kMulticastQpn, kFrame);
  while (dropped(FrameDrop::not_receiving) < 2 * kFrames) {
    for (std::size_t i = 0; i < 32; ++i) {
      write(frame);
    }
    ASSERT_EQ(pump(), 32U);
  }
}

// Five good frames, a bad one and another good one: the turn ends behind the bad one.
TEST_F(SwitchboardTest, GoodFramesBeforeABadOneGoWithIt) {
  for (int i = 0; i < 5; ++i) {
    write(roce_frame(address(0), address(1), 1U << 16, kFrame));
  }
  write(std::vector<std::byte>(kFrame));
  write(roce_frame(address(0), address(1), 1U << 16, kFrame));
  EXPECT_EQ(pump(), 6U);
  EXPECT_EQ(pump(), 1U);
  EXPECT_EQ(switchboard_->counters().frames, 6U);
}

}  // namespace
}  // namespace weft::daemon
