// Owns the ends of a group that are not deaths: who waits for whom, and who is told.
#include <gtest/gtest.h>

#include "tests/unit/integration/nccl/rma_lab.hpp"

namespace weft::testing {
namespace {

using nccl::Outcome;
using nccl::Request;
using nccl::RmaSignal;
using nccl::RmaStep;
using Memory = std::vector<std::vector<std::byte>>;

// Nobody waits for a member that has its answer: one without memory must not run ahead of the
// others so far that they forget what it said.
TEST(RmaEnds, MemberWithoutMemoryWaitsForTheOthersToo) {
  RmaLab lab(2, patient_members());
  ASSERT_TRUE(lab.join());
  std::vector<std::byte> memory(64);
  const auto begin = [&](std::uint32_t who, std::byte* data) {
    std::uint32_t window = 0;
    EXPECT_EQ(lab.rma(who).register_window(lab.member(who).group, data, 64, window), Outcome::ok);
    return window;
  };
  const auto step = [&](std::uint32_t who, std::uint32_t window) {
    return lab.rma(who).registered(lab.member(who).group, window);
  };
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t first = begin(0, nullptr);
    lab.run_for(1ms);
    EXPECT_EQ(step(0, first), RmaStep::waits);
    const std::uint32_t second = begin(1, memory.data());
    EXPECT_TRUE(lab.run_until(
        [&] { return step(0, first) == RmaStep::failed && step(1, second) == RmaStep::failed; }));
    EXPECT_TRUE(lab.rma(0).deregister(lab.member(0).group, first));
    EXPECT_TRUE(lab.rma(1).deregister(lab.member(1).group, second));
  }
}

// A member whose caller gave up after the others had told it their names: they must not wait.
TEST(RmaEnds, ListenerThatIsClosedTellsWhoHasJoined) {
  RmaLab lab(2, patient_members());
  const std::vector<nccl::ListenHandle> handles{lab.member(0).handle, lab.member(1).handle};
  std::uint16_t group = 0;
  ASSERT_EQ(lab.rma(0).join(handles, 0, lab.member(0).listener, group), Outcome::ok);
  lab.run_for(10ms);
  EXPECT_EQ(lab.rma(0).joined(group), RmaStep::waits);
  lab.rma(1).close_listener(lab.member(1).listener);
  EXPECT_TRUE(lab.run_until([&] { return lab.rma(0).joined(group) == RmaStep::failed; }, 1s));
  EXPECT_EQ(lab.rma(0).failure_of(group), Outcome::remote_error);
}

// Two members claim rank 1. Nobody can know which is right, so the group fails, and at all of them.
TEST(RmaEnds, TwoMembersOfOneRankFailBoth) {
  RmaLab lab(3, patient_members());
  std::vector<nccl::ListenHandle> handles;
  for (std::uint32_t i = 0; i < 3; ++i) {
    handles.push_back(lab.member(i).handle);
  }
  std::array<std::uint16_t, 3> groups{};
  for (std::uint32_t i = 0; i < 3; ++i) {
    const std::uint32_t claimed = i == 2 ? 1 : i;
    ASSERT_EQ(lab.rma(i).join(handles, claimed, lab.member(i).listener, groups[i]), Outcome::ok);
    lab.run_for(1ms);
  }
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(lab.run_until([&] { return lab.rma(i).joined(groups[i]) == RmaStep::failed; }, 1s))
        << i;
  }
}

// The other side of a group that was closed here joins anew, while ours is still the old one.
TEST(RmaEnds, JoinOfALaterGroupByTheSameListenerIsRefused) {
  RmaLab lab(2, patient_members());
  const std::vector<nccl::ListenHandle> handles{lab.member(0).handle, lab.member(1).handle};
  std::array<std::uint16_t, 2> groups{};
  for (std::uint32_t i = 0; i < 2; ++i) {
    ASSERT_EQ(lab.rma(i).join(handles, i, lab.member(i).listener, groups[i]), Outcome::ok);
  }
  lab.run_for(1ms);
  ASSERT_EQ(lab.rma(0).joined(groups[0]), RmaStep::done);
  lab.rma(0).close(groups[0]);
  ASSERT_EQ(lab.rma(0).join(handles, 0, lab.member(0).listener, groups[0]), Outcome::ok);
  EXPECT_TRUE(lab.run_until([&] { return lab.rma(0).joined(groups[0]) == RmaStep::failed; }, 1s));
}

// So many signals wait for a member that no buffer is left: they must not hold up the others longer
// than it takes to find that it is dead.
TEST(RmaEnds, SignalsToADeadMemberHoldUpNobodyAfterItsDeath) {
  RmaGroup group(3);
  RmaLab& lab = group.lab;
  lab.crash(1);
  for (int i = 0; i < 12; ++i) {
    std::uint32_t context = 0;
    ASSERT_EQ(lab.rma(0).create_context(lab.member(0).group, 1, context), Outcome::ok);
    for (std::size_t j = 0; j < nccl::Rma::kMaxOutstanding; ++j) {
      Request* request = nullptr;
      ASSERT_EQ(lab.rma(0).put(lab.member(0).group, context, 1, {}, 0, {},
                               RmaSignal{{group.window, 0}, 1, false}, request),
                Outcome::ok);
      ASSERT_NE(request, nullptr);
    }
  }
  Request* const other = lab.put(0, 2, {}, 0, {}, RmaSignal{{group.window, 0}, 1, true});
  EXPECT_TRUE(lab.run_until([&] { return lab.rma(0).has_failed(lab.member(0).group); }, 12s));
  EXPECT_EQ(lab.outcome(0, other, 1s), Outcome::ok);
  EXPECT_TRUE(lab.rma(0).idle());
}

// Where no buffer is free at the moment, the answer comes later.
TEST(RmaEnds, SignalForAWindowThatIsGoneFailsAlsoWhereThereIsNoRoomToSaySo) {
  RmaGroup group(3);
  RmaLab& lab = group.lab;
  lab.world().pause(2);
  for (int i = 0; i < 3; ++i) {
    std::uint32_t context = 0;
    ASSERT_EQ(lab.rma(0).create_context(lab.member(0).group, 1, context), Outcome::ok);
    for (std::size_t j = 0; j < nccl::Rma::kMaxOutstanding; ++j) {
      Request* request = nullptr;
      ASSERT_EQ(lab.rma(0).put(lab.member(0).group, context, 2, {}, 0, {},
                               RmaSignal{{group.window, 0}, 1, false}, request),
                Outcome::ok);
    }
  }
  EXPECT_FALSE(lab.rma(0).idle());
  ASSERT_TRUE(lab.rma(0).deregister(lab.member(0).group, group.window));
  (void)lab.outcome(1, lab.put(1, 0, {}, 0, {}, RmaSignal{{group.window, 0}, 1, true}));
  lab.run_for(1ms);
  lab.world().resume(2);
  EXPECT_TRUE(lab.run_until([&] { return lab.rma(1).has_failed(lab.member(1).group); }, 1s));
}

// What fails for one side alone: the other one waits for a window, and must be told of the end.
TEST(RmaEnds, MemberThatLeavesAFailedGroupSaysSo) {
  RmaGroup group(2);
  RmaLab& lab = group.lab;
  std::uint32_t window = 0;
  std::vector<std::byte> memory(64);
  EXPECT_EQ(lab.rma(1).register_window(lab.member(1).group, memory.data(), 64, window),
            Outcome::ok);
  lab.run_for(1ms);
  Request* const request = lab.put(0, 1, {group.window, 0}, 60'000, {group.window, 0});
  ASSERT_TRUE(lab.rma(0).deregister(lab.member(0).group, group.window));
  EXPECT_EQ(lab.outcome(0, request), Outcome::invalid_usage);
  lab.rma(0).close(lab.member(0).group);
  EXPECT_TRUE(lab.run_until(
      [&] { return lab.rma(1).registered(lab.member(1).group, window) == RmaStep::failed; }, 1s));
}

// The caller's last look at a request crosses the end of its group.
TEST(RmaEnds, RequestThatIsReleasedAfterItsGroupStaysOneRequest) {
  RmaLab lab(1);
  ASSERT_TRUE(lab.join());
  lab.make_contexts();
  Memory memory(1, std::vector<std::byte>(64));
  std::uint32_t window = lab.register_all(memory);
  Request* const old = lab.put(0, 0, {window, 0}, 8, {window, 8});
  lab.rma(0).close(lab.member(0).group);
  lab.rma(0).release(*old);
  lab.member(0).listener = lab.rma(0).listen(lab.member(0).handle);
  ASSERT_TRUE(lab.join());
  lab.make_contexts();
  window = lab.register_all(memory);
  Request* const one = lab.put(0, 0, {window, 0}, 8, {window, 8});
  Request* const two = lab.put(0, 0, {window, 0}, 8, {window, 8});
  EXPECT_NE(one, two);
}

}  // namespace
}  // namespace weft::testing
