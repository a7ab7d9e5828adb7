// Tests of ids that go many at once, as at the end of a process: each peer hears the good-bye.
//
// Host 1 goes, host 0 stays. A process that closes its file destroys all its ids in one round, and
// nobody is left afterwards to say anything again.
#include <gtest/gtest.h>

#include "tests/unit/emu/roce/cm/world.hpp"

namespace weft::roce::cm {
namespace {

// More than the messages that an owner may leave unfetched.
class Parting : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  Parting() {
    const Handle listener = world.listener(0);
    for (std::uint32_t i = 0; i < GetParam(); ++i) {
      connections.push_back(connect(world, listener, 2 * i + 16));
    }
    world.sent.clear();
  }
  void destroy_all() {
    for (const Connected& both : connections) {
      world.managers[1]->destroy(world.now, both.active);
    }
  }
  // The ids of host 0 that have heard that their peer has gone.
  std::set<std::uint32_t> left() {
    world.run_for(std::chrono::seconds{1});
    std::set<std::uint32_t> ids;
    for (const Event& event : world.heard[0]) {
      EXPECT_EQ(event.kind, EventKind::disconnected);
      EXPECT_TRUE(ids.insert(event.id.value()).second) << "heard twice";
    }
    return ids;
  }

  World world{2};
  std::vector<Connected> connections;
};

TEST_P(Parting, EachPeerHearsIt) {
  destroy_all();
  EXPECT_EQ(left().size(), GetParam());
  EXPECT_EQ(world.managers[1]->counters().dropped, 0U);
}

// A network that loses a burst takes first copies only: all of them leave before any second one.
TEST_P(Parting, TheSecondCopiesAloneAreEnough) {
  std::uint32_t lost = 0;
  world.fate = [&](const wire::CmMessage& message) {
    Fate fate;
    fate.lost = message.kind == wire::CmKind::disconnect_request && lost < GetParam();
    lost += fate.lost ? 1 : 0;
    return fate;
  };
  destroy_all();
  EXPECT_EQ(left().size(), GetParam());
  EXPECT_EQ(lost, GetParam());
}

// Of those that have said it already, which not all could.
TEST_P(Parting, SaysItToThoseThatItDisconnectedFrom) {
  for (const Connected& both : connections) {
    ASSERT_EQ(world.managers[1]->disconnect(world.now, both.active), 0);
  }
  destroy_all();
  EXPECT_EQ(left().size(), GetParam());
}

// Other messages have the room that they always have.
TEST_P(Parting, LeavesRoomForOtherMessages) {
  const Handle active = world.routed(1, 0);
  destroy_all();
  ASSERT_EQ(world.managers[1]->connect(world.now, active, parameters_of(1)), 0);
  world.settle();
  EXPECT_EQ(world.managers[1]->counters().dropped, 0U);
  std::uint32_t requests = 0;
  for (const wire::CmMessage& message : world.sent) {
    requests += message.kind == wire::CmKind::request ? 1 : 0;
  }
  EXPECT_EQ(requests, 1U);
}

INSTANTIATE_TEST_SUITE_P(Many, Parting, ::testing::Values(700, 1200, 5000));

}  // namespace
}  // namespace weft::roce::cm
