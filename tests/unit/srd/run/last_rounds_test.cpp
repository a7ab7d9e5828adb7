// Tests of how long a process that ends drives its NIC: until all has left, but not for ever.
//
// The machine is busy: between two rounds the process has no core for a millisecond, which is
// longer than it waits where there is nothing to do.
#include "srd/run/last_rounds.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>

#include "srd/io/memory_io.hpp"

namespace weft::srd {
namespace {

using std::chrono::milliseconds;

// Has packets to send.
struct Talker final : Machine {
  void on_packet(TimePoint /*now*/, const RxPacket& /*packet*/) override { ++received; }
  void on_timeout(TimePoint /*now*/) override {}
  [[nodiscard]] bool next_transmit(TimePoint /*now*/, TxPacket& out) override {
    if (left == 0) {
      return false;
    }
    --left;
    out.header.fill({});
    out.header_size = 64;
    out.payload = {};
    return true;
  }
  [[nodiscard]] TimePoint next_timeout() const override { return kNever; }
  // A question is a packet, and the peer has heard once `deaf` of them are behind it.
  void take_leave(TimePoint /*now*/, Leave how) {
    begun += how == Leave::begin ? 1 : 0;
    ended += how == Leave::end ? 1 : 0;
    if (is_awaited() && how != Leave::end) {
      ++left;
      ++asked;
      deaf -= deaf == kForEver ? 0 : 1;
    }
  }
  [[nodiscard]] bool is_awaited() const { return deaf != 0 && !gone; }
  void stop_waiting() { gone = true; }

  static constexpr int kForEver = -1;
  int deaf = 0;
  int asked = 0;
  int begun = 0;
  int ended = 0;
  bool gone = false;

  int left = 0;
  int received = 0;
};

struct JumpingTime {
  [[nodiscard]] TimePoint now() {
    between_rounds();
    return at += milliseconds{1};
  }
  void sleep(Duration time) { at += time; }

  std::function<void()> between_rounds;
  TimePoint at{};
};

class LastRounds : public ::testing::Test {
 protected:
  // The carrier has room for so many packets.
  void start(std::size_t room, int left) {
    MemoryIo::Config far;
    far.depth = room;
    std::tie(own, peer) = MemoryIo::create_pair({}, far);
    auto machine = std::make_unique<Talker>();
    talker = machine.get();
    talker->left = left;
    auto created = Host<Talker>::create(std::move(machine), std::move(own));
    ASSERT_TRUE(created);
    host = std::move(*created);
    // As a round that was made before, such as that in which good-byes were said.
    (void)host->poll();
  }
  void read_all() const {
    while (!peer->receive().empty()) {
      peer->release();
    }
  }
  // How long it took.
  Duration finish(std::function<void()> between_rounds, Duration longest = kLongestEnd) {
    JumpingTime time{.between_rounds = std::move(between_rounds)};
    all_heard = make_last_rounds(*host, longest, time);
    EXPECT_EQ(talker->begun, 1);
    EXPECT_EQ(talker->ended, 1);
    return time.at - TimePoint{};
  }

  std::unique_ptr<PacketIo> own;
  std::unique_ptr<PacketIo> peer;
  std::unique_ptr<Host<Talker>> host;
  Talker* talker = nullptr;
  bool all_heard = false;
};

TEST_F(LastRounds, SendWhatARoundHasNoRoomFor) {
  start(/*room=*/4, /*left=*/200);
  finish([this] { read_all(); });
  EXPECT_EQ(talker->left, 0);
}

// 64 packets, however much room there is.
TEST_F(LastRounds, SendWhatIsTooMuchForOneRound) {
  start(/*room=*/256, /*left=*/2000);
  finish([this] { read_all(); });
  EXPECT_EQ(talker->left, 0);
}

// Its reader has no core either: in some rounds nothing moves at all.
TEST_F(LastRounds, WaitForACarrierThatIsFull) {
  start(/*room=*/4, /*left=*/60);
  int pauses = 0;
  finish([&] {
    if (++pauses % 4 == 0) {
      read_all();
    }
  });
  EXPECT_EQ(talker->left, 0);
}

TEST_F(LastRounds, EndThoughTheCarrierTakesNothing) {
  start(/*room=*/4, /*left=*/200);
  const Duration took = finish([] {});
  EXPECT_EQ(talker->left, 196);
  EXPECT_GE(took, milliseconds{100});
  EXPECT_LE(took, milliseconds{103});
}

// Such as the one that drives the NIC otherwise: it may lose its core in the middle of a round.
TEST_F(LastRounds, WaitForAThreadThatHasTheNic) {
  start(/*room=*/4, /*left=*/20);
  for (const int rounds : {10, 1000}) {
    std::promise<void> inside;
    std::promise<void> left;
    std::thread keeper([&] {
      host->with([&](Talker& /*talker*/, TimePoint /*now*/) {
        inside.set_value();
        left.get_future().wait();
      });
    });
    inside.get_future().wait();
    int made = 0;
    const Duration took = finish([&] {
      read_all();
      if (++made == rounds) {
        left.set_value();
        keeper.join();
      }
    });
    if (keeper.joinable()) {  // it stays for ever, which is not waited for
      EXPECT_GE(took, milliseconds{100});
      EXPECT_LE(took, milliseconds{103});
      left.set_value();
      keeper.join();
    } else {
      EXPECT_EQ(talker->left, 0);
    }
  }
}

TEST_F(LastRounds, AreFewWhereNothingIsLeft) {
  start(/*room=*/4, /*left=*/3);
  EXPECT_LE(finish([] {}), milliseconds{2});
}

// It would be answered for ever.
TEST_F(LastRounds, AreFewThoughAPeerGoesOn) {
  start(/*room=*/4, /*left=*/0);
  EXPECT_LE(finish([this] {
              TxPacket packet;
              packet.header.fill({});
              packet.header_size = 64;
              EXPECT_EQ(peer->transmit({&packet, 1}), 1U);
            }),
            milliseconds{3});
  EXPECT_GT(talker->received, 0);
}

// It may have missed all that it was told so far.
TEST_F(LastRounds, EndAsSoonAsThePeerHasHeard) {
  start(/*room=*/4, /*left=*/0);
  talker->deaf = 3;
  const Duration took = finish([this] { read_all(); });
  EXPECT_EQ(talker->asked, 3);
  EXPECT_TRUE(all_heard);
  EXPECT_GE(took, milliseconds{3});
  EXPECT_LE(took, milliseconds{7});
}

TEST_F(LastRounds, AskAPeerThatDoesNotAnswerAFewTimes) {
  start(/*room=*/4, /*left=*/0);
  talker->deaf = Talker::kForEver;
  const Duration took = finish([this] { read_all(); });
  EXPECT_EQ(talker->asked, 7);
  EXPECT_GE(took, milliseconds{100});
  EXPECT_LE(took, milliseconds{103});
  EXPECT_TRUE(talker->gone);
  EXPECT_FALSE(all_heard);
}

// The NICs before it have taken the time.
TEST_F(LastRounds, AreOneWhereNoTimeIsLeft) {
  start(/*room=*/4, /*left=*/0);
  talker->deaf = Talker::kForEver;
  EXPECT_LE(finish([this] { read_all(); }, {}), milliseconds{2});
  EXPECT_EQ(talker->asked, 1);
}

}  // namespace
}  // namespace weft::srd
