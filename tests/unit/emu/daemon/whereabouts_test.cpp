// Owns the tests of which ports may say where an address lives. A frame's source says behind which
// port its sender is, and may lie; whoever could move others' addresses to itself would get their
// frames. kProved is a port whose datagrams prove where they come from; 7 is an address and 1 to 3
// are ports.
#include "emu/daemon/whereabouts.hpp"

#include <gtest/gtest.h>

namespace weft::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Places = Whereabouts<std::uint64_t>;

constexpr bool kProved = true;

// Port 2 tries 100 times to take an address that port 1 keeps sending from, and gets it when
// nothing was heard for kAlive.
TEST(Whereabouts, TheLivingAreNotMoved) {
  Places places;
  TimePoint now{};
  EXPECT_EQ(places.find(7), -1);
  EXPECT_TRUE(places.claim(now, 1, !kProved, 7));
  for (int i = 0; i < 100; ++i) {
    // Less than kAlive.
    now += seconds{20};
    EXPECT_FALSE(places.claim(now, 2, !kProved, 7));
    EXPECT_TRUE(places.claim(now, 1, !kProved, 7));
    EXPECT_EQ(places.find(7), 1);
  }
  now += Places::kAlive - milliseconds{1};
  EXPECT_FALSE(places.claim(now, 2, !kProved, 7)) << "that does not keep it alive either";
  now += milliseconds{1};
  EXPECT_TRUE(places.claim(now, 2, !kProved, 7));
  EXPECT_EQ(places.find(7), 2);
}

TEST(Whereabouts, AProofCountsMoreThanHavingComeFirst) {
  Places places;
  TimePoint now{};
  EXPECT_TRUE(places.claim(now, 1, !kProved, 7));
  EXPECT_TRUE(places.claim(now, 2, kProved, 7));
  EXPECT_EQ(places.find(7), 2);
  now += std::chrono::hours{24};
  EXPECT_FALSE(places.claim(now, 1, !kProved, 7)) << "however long nothing was heard";
  EXPECT_FALSE(places.claim(TimePoint{} + seconds{1}, 3, kProved, 7));
  EXPECT_TRUE(places.claim(now, 3, kProved, 7)) << "it has moved to another proved port";
}

// Port 1 sends from far more addresses than a port has room for. Those known before stay, and other
// ports still have room.
TEST(Whereabouts, MadeUpAddressesPushNobodyOut) {
  Places places;
  TimePoint now{};
  EXPECT_TRUE(places.claim(now, 0, !kProved, 1));
  EXPECT_TRUE(places.claim(now, 1, !kProved, 2));
  for (std::uint64_t made_up = 100; made_up < 100'000; ++made_up) {
    EXPECT_TRUE(places.claim(now, 1, !kProved, made_up)) << "it passes, though nobody learns of it";
  }
  EXPECT_EQ(places.find(1), 0);
  EXPECT_EQ(places.find(2), 1);
  EXPECT_EQ(places.find(99'999), -1);
  EXPECT_TRUE(places.claim(now, 0, !kProved, 3));
  EXPECT_EQ(places.find(3), 0);
  // They are forgotten in the end, and addresses that still send are not.
  now += Places::kAlive - milliseconds{1};
  EXPECT_TRUE(places.claim(now, 1, !kProved, 2));
  now += milliseconds{1};
  EXPECT_TRUE(places.claim(now, 1, !kProved, 4));
  EXPECT_EQ(places.find(4), 1);
  EXPECT_EQ(places.find(2), 1);
  EXPECT_EQ(places.find(100), -1);
}

TEST(Whereabouts, APortThatIsGoneTakesWhoLivedThereWithIt) {
  Places places;
  const TimePoint now{};
  EXPECT_TRUE(places.claim(now, 0, !kProved, 1));
  EXPECT_TRUE(places.claim(now, 1, !kProved, 2));
  places.forget(1);
  places.forget(7);  // of which nothing was heard
  EXPECT_EQ(places.find(1), 0);
  EXPECT_EQ(places.find(2), -1);
  EXPECT_TRUE(places.claim(now, 0, !kProved, 2)) << "it may live elsewhere at once";
  EXPECT_EQ(places.find(2), 0);
  for (std::uint64_t made_up = 100; made_up < 100 + 2 * Places::kMaxPerPort; ++made_up) {
    EXPECT_TRUE(places.claim(now, 1, !kProved, made_up));
  }
  EXPECT_EQ(places.find(100 + Places::kMaxPerPort - 1), 1) << "there is room for as many as ever";
}

}  // namespace
}  // namespace weft::daemon
