// Owns what dead, restarted, leaving and hostile members do to a group, and closing at any moment.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "srd/base/rng.hpp"
#include "tests/unit/integration/nccl/rma_lab.hpp"

namespace weft::testing {
namespace {

using nccl::Outcome;
using nccl::Request;
using nccl::RmaKind;
using nccl::RmaMessage;
using nccl::RmaSignal;
using nccl::RmaStep;

// Forty requests with weak and strong signals to a member that has died or come back as another:
// all end as errors, within the time-out of 10 s, and the others go on.
TEST(RmaFaults, DeadMemberEndsWhatIsUnderWayToIt) {
  for (const bool restarts : {false, true}) {
    RmaGroup group(3);
    RmaLab& lab = group.lab;
    restarts ? lab.restart(1) : lab.crash(1);
    const TimePoint begin = lab.world().now();
    std::vector<Request*> requests;
    for (int i = 0; i < 20; ++i) {
      requests.push_back(lab.put(0, 1, {group.window, 0}, 1000, {group.window, 0},
                                 RmaSignal{{group.window, 8}, 1, i % 2 == 0}));
      requests.push_back(lab.get(0, 1, {group.window, 0}, 1000, {group.window, 2000}));
    }
    for (Request* const one : requests) {
      EXPECT_EQ(lab.outcome(0, one), Outcome::remote_error);
    }
    EXPECT_LT(lab.world().now() - begin, 12s);
    EXPECT_TRUE(lab.rma(0).has_failed(lab.member(0).group));
    Request* later = nullptr;
    EXPECT_EQ(lab.rma(0).put(lab.member(0).group, lab.member(0).context, 1, {}, 0, {},
                             RmaSignal{{group.window, 8}, 1, true}, later),
              Outcome::remote_error);
    // Members that live still reach each other.
    EXPECT_EQ(lab.outcome(0, lab.put(0, 2, {group.window, 0}, 8, {group.window, 64})), Outcome::ok);
  }
}

// While it waits for the others' names or parts, nothing of a member's own is under way.
TEST(RmaFaults, DeadMemberEndsTheWaitForIt) {
  for (const bool joining : {true, false}) {
    SCOPED_TRACE(joining ? "joining" : "registering");
    RmaLab lab(3, patient_members());
    std::vector<nccl::ListenHandle> handles;
    for (std::uint32_t i = 0; i < 3; ++i) {
      handles.push_back(lab.member(i).handle);
    }
    std::uint32_t window = 0;
    std::vector<std::byte> memory(64);
    if (!joining) {
      ASSERT_TRUE(lab.join());
    }
    for (std::uint32_t i = 0; i < 2; ++i) {
      const Outcome begun =
          joining ? lab.rma(i).join(handles, i, lab.member(i).listener, lab.member(i).group)
                  : lab.rma(i).register_window(lab.member(i).group, memory.data(), 64, window);
      EXPECT_EQ(begun, Outcome::ok);
    }
    const auto step = [&](std::uint32_t i) {
      return joining ? lab.rma(i).joined(lab.member(i).group)
                     : lab.rma(i).registered(lab.member(i).group, window);
    };
    lab.run_for(60s);
    EXPECT_EQ(step(0), RmaStep::waits) << "a slow member is not a dead one";
    lab.crash(2);
    for (std::uint32_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(lab.run_until([&] { return step(i) == RmaStep::failed; }, 15s));
      EXPECT_EQ(lab.rma(i).failure_of(lab.member(i).group), Outcome::remote_error);
    }
  }
}

// Who waits for a signal has asked for nothing: it reads its own memory, and queryLastError() is
// all that can tell that the signal will never come. All that the member was sent it had taken.
TEST(RmaFaults, DeadMemberIsNoticedByThoseWhoOnlyWaitForItsSignals) {
  for (const bool restarts : {false, true}) {
    RmaGroup group(3);
    RmaLab& lab = group.lab;
    EXPECT_EQ(lab.outcome(0, lab.put(0, 1, {group.window, 0}, 1000, {group.window, 0},
                                     RmaSignal{{group.window, 8}, 1, true})),
              Outcome::ok);
    const std::uint64_t before = lab.engine(0).counters().tx_pkts;
    lab.run_for(60s);
    EXPECT_FALSE(lab.rma(0).has_failed(lab.member(0).group)) << "a slow member is not a dead one";
    EXPECT_LT(lab.engine(0).counters().tx_pkts - before, 2U * 60 * 40) << "for two members";
    restarts ? lab.restart(1) : lab.crash(1);
    for (const std::uint32_t rank : {0U, 2U}) {
      EXPECT_TRUE(
          lab.run_until([&] { return lab.rma(rank).has_failed(lab.member(rank).group); }, 12s))
          << "rank " << rank;
      EXPECT_EQ(lab.rma(rank).failure_of(lab.member(rank).group), Outcome::remote_error);
    }
  }
}

// Members close one after the other, and the later ones go on asking until they have heard of it.
TEST(RmaFaults, MemberThatHasLeftIsNoDeadOne) {
  RmaGroup group(2);
  RmaLab& lab = group.lab;
  lab.world().network().lose_next(world::Packet::data, 40);  // the good-bye, for a while
  lab.rma(1).close(lab.member(1).group);
  lab.run_for(60s);
  EXPECT_FALSE(lab.rma(0).has_failed(lab.member(0).group));
}

TEST(RmaFaults, MemberThatLeavesEndsTheWaitForIt) {
  RmaGroup group(2);
  RmaLab& lab = group.lab;
  std::uint32_t window = 0;
  std::vector<std::byte> memory(64);
  EXPECT_EQ(lab.rma(0).register_window(lab.member(0).group, memory.data(), 64, window),
            Outcome::ok);
  lab.run_for(1ms);
  lab.rma(1).close(lab.member(1).group);
  EXPECT_TRUE(lab.run_until(
      [&] { return lab.rma(0).registered(lab.member(0).group, window) == RmaStep::failed; }, 1s));
}

// The others still know the former life, and find out by the first message of the new group.
TEST(RmaFaults, FirstGroupWithARestartedProcessIsMade) {
  RmaLab lab(2, patient_members());
  ASSERT_TRUE(lab.join());
  lab.run_for(1ms);
  for (const std::uint32_t victim : {1U, 0U}) {
    lab.restart(victim);
    for (std::uint32_t i = 0; i < 2; ++i) {
      lab.member(i).listener = lab.rma(i).listen(lab.member(i).handle);
    }
    EXPECT_TRUE(lab.join());
  }
}

// First what can be refused without a question, then what only the other member can refuse: secret,
// listener, Q_Key, endpoint.
TEST(RmaFaults, ForeignOrStaleHandlesAreRefused) {
  RmaLab lab(2, patient_members());
  std::vector<nccl::ListenHandle> handles{lab.member(0).handle, lab.member(1).handle};
  std::uint16_t group = 0;
  nccl::Rma& rma = lab.rma(0);
  const std::uint32_t listener = lab.member(0).listener;
  handles[1].magic = 5;
  EXPECT_EQ(rma.join(handles, 0, listener, group), Outcome::invalid_argument);
  EXPECT_EQ(rma.join({}, 0, listener, group), Outcome::invalid_argument);
  handles[1] = lab.member(1).handle;
  EXPECT_EQ(rma.join(handles, 2, listener, group), Outcome::invalid_argument);
  EXPECT_EQ(rma.join(handles, 0, listener + 9, group), Outcome::invalid_argument);
  for (int wrong = 0; wrong < 4; ++wrong) {
    SCOPED_TRACE(wrong);
    handles[1] = lab.member(1).handle;
    if (wrong == 0) {
      handles[1].secret = handles[1].secret.value() + 1;
    } else if (wrong == 1) {
      handles[1].listener = 77;
    } else if (wrong == 2) {
      handles[1].qkey = handles[1].qkey.value() + 1;
    } else {
      handles[1].control = handles[1].control.value() + 100;
    }
    ASSERT_EQ(rma.join(handles, 0, listener, group), Outcome::ok);
    EXPECT_TRUE(lab.run_until([&] { return rma.joined(group) == RmaStep::failed; }, 1s));
    rma.close(group);
  }
  lab.run_for(1ms);
  EXPECT_TRUE(lab.join()) << "the listeners are as they were";
}

// Three handles here, two there: both must learn of it, or each would wait for members that never
// come.
TEST(RmaFaults, MembersThatDisagreeAboutTheGroupFailBoth) {
  RmaLab lab(3, patient_members());
  std::vector<nccl::ListenHandle> handles;
  for (std::uint32_t i = 0; i < 3; ++i) {
    handles.push_back(lab.member(i).handle);
  }
  std::array<std::uint16_t, 2> groups{};
  ASSERT_EQ(lab.rma(0).join(handles, 0, lab.member(0).listener, groups[0]), Outcome::ok);
  handles.pop_back();
  ASSERT_EQ(lab.rma(1).join(handles, 1, lab.member(1).listener, groups[1]), Outcome::ok);
  EXPECT_TRUE(lab.run_until([&] {
    return lab.rma(0).joined(groups[0]) == RmaStep::failed &&
           lab.rma(1).joined(groups[1]) == RmaStep::failed;
  }));
}

// Whatever is under way: afterwards the memory is the caller's again, which the test poisons.
TEST(RmaFaults, DeregistrationWithWorkUnderWayTakesTheMemoryBack) {
  for (int moment = 0; moment < 30; ++moment) {
    for (const std::uint32_t who : {0U, 1U}) {
      SCOPED_TRACE(std::to_string(moment) + ", rank " + std::to_string(who));
      RmaLabConfig config = patient_members();
      config.lab.seed = static_cast<std::uint64_t>(moment + 1);
      config.lab.link.loss = 0.05;
      RmaGroup group(2, config);
      RmaLab& lab = group.lab;
      std::vector<Request*> requests;
      for (int i = 0; i < 8; ++i) {
        requests.push_back(lab.put(0, 1, {group.window, 0}, 40'000, {group.window, 0}));
        requests.push_back(lab.get(0, 1, {group.window, 0}, 20'000, {group.window, 40'000}));
      }
      lab.run_for(moment * 3us);
      ASSERT_TRUE(lab.rma(who).deregister(lab.member(who).group, group.window));
      std::ranges::fill(group.memory[who], std::byte{0x77});
      for (Request* const one : requests) {
        const Outcome outcome = lab.outcome(0, one);
        EXPECT_TRUE(outcome == Outcome::ok ||
                    outcome == (who == 0 ? Outcome::invalid_usage : Outcome::remote_error));
      }
      lab.run_for(1s);
      EXPECT_EQ(std::ranges::count(group.memory[who], std::byte{0x77}), 65536);
    }
  }
}

// The closing side poisons its memory at once: any byte that changes afterwards was written without
// right.
TEST(RmaFaults, CloseAtAnyMomentEndsTheOtherSideAndTouchesNothing) {
  for (int moment = 0; moment < 30; ++moment) {
    for (const std::uint32_t who : {0U, 1U}) {
      SCOPED_TRACE(std::to_string(moment) + ", rank " + std::to_string(who));
      RmaLabConfig config = patient_members();
      config.lab.seed = static_cast<std::uint64_t>(moment + 1);
      config.lab.link.reorder = 0.2;
      config.lab.link.loss = 0.05;
      RmaGroup group(2, config);
      RmaLab& lab = group.lab;
      std::vector<Request*> requests;
      for (int i = 0; i < 10; ++i) {
        requests.push_back(lab.put(0, 1, {group.window, 64}, 20'000, {group.window, 64},
                                   RmaSignal{{group.window, 0}, 1, i % 2 == 0}));
      }
      lab.run_for(moment * 2us);
      if (who == 0 && moment % 2 == 0) {
        lab.rma(0).destroy_context(lab.member(0).group, lab.member(0).context);
      }
      lab.rma(who).close(lab.member(who).group);
      std::ranges::fill(group.memory[who], std::byte{0x77});
      if (who == 1) {
        for (Request* const one : requests) {
          const Outcome outcome = lab.outcome(0, one);
          EXPECT_TRUE(outcome == Outcome::ok || outcome == Outcome::remote_error);
        }
      }
      lab.run_for(1s);
      EXPECT_EQ(std::ranges::count(group.memory[who], std::byte{0x77}), 65536);
      EXPECT_TRUE(lab.rma(0).idle());
      // Numbers and requests are there for the next group.
      for (std::uint32_t i = 0; i < 2; ++i) {
        lab.member(i).listener = lab.rma(i).listen(lab.member(i).handle);
      }
      ASSERT_TRUE(lab.join());
    }
  }
}

// Four seconds, less than the ten of patient_members().
TEST(RmaFaults, StoppedMemberIsNotADeadOne) {
  RmaGroup group(2);
  RmaLab& lab = group.lab;
  lab.world().pause(1);
  fill_bytes(std::span{group.memory[0]}.first(30'000), 3);
  Request* const request = lab.put(0, 1, {group.window, 0}, 30'000, {group.window, 8},
                                   RmaSignal{{group.window, 0}, 1, true});
  lab.run_for(4s);
  EXPECT_EQ(request->state.load(), Request::State::pending);
  lab.world().resume(1);
  EXPECT_EQ(lab.outcome(0, request), Outcome::ok);
  EXPECT_TRUE(has_bytes(std::span{group.memory[1]}.subspan(8, 30'000), 3));
  EXPECT_EQ(word_at(group.memory[1], 0), 1U);
}

// A signal for a window that its target has given up must not be told as if it had been added.
TEST(RmaFaults, SignalForAWindowThatIsGoneFails) {
  RmaGroup group(2);
  RmaLab& lab = group.lab;
  ASSERT_TRUE(lab.rma(1).deregister(lab.member(1).group, group.window));
  (void)lab.outcome(0, lab.put(0, 1, {}, 0, {}, RmaSignal{{group.window, 0}, 1, true}));
  EXPECT_TRUE(lab.run_until([&] { return lab.rma(0).has_failed(lab.member(0).group); }, 1s));
}

// A process that speaks to the endpoints, knows the Q_Key, and guesses.
TEST(RmaFaults, AnyMessagesAreCountedAndHarmNobody) {
  RmaGroup group(3);
  RmaLab& lab = group.lab;
  srd::Engine& attacker = lab.engine(2);
  const nccl::ListenHandle& told = lab.member(1).handle;
  const srd::PeerId victim =
      attacker.peer(world::address_of_host(1), lab.engine(1).config().attachment).value();
  Rng rng(3);
  const std::vector<std::byte> before = group.memory[1];
  std::vector<std::byte> bytes(60);
  for (int i = 0; i < 4000; ++i) {
    RmaMessage message;
    message.kind = static_cast<std::uint8_t>(rng.below(7));
    message.flags = static_cast<std::uint8_t>(rng.below(8) == 0);
    message.to_group = static_cast<std::uint16_t>(1 + rng.below(2));
    message.to_nonce = static_cast<std::uint32_t>(rng.next());
    message.from_rank = static_cast<std::uint32_t>(rng.below(4));
    message.qkey = static_cast<std::uint32_t>(rng.next());
    message.number = static_cast<std::uint32_t>(rng.below(3));
    message.place = rng.next();
    message.amount = rng.next();
    std::memcpy(bytes.data(), &message, sizeof message);
    srd::SendRequest request;
    request.peer = victim;
    request.source = srd::Qpn{10};  // an endpoint of the attacker's that awaits nothing
    request.destination = srd::Qpn{8};
    request.qkey = told.qkey.value();
    request.cookie = nccl::Cookie{nccl::Lane::watch, 0, 0xFFFF}.pack();
    const auto length = rng.below(8) == 0 ? rng.below(60) : sizeof message;
    request.segments[0] = {bytes.data(), static_cast<std::uint32_t>(length)};
    (void)attacker.post(request);
    srd::WriteRequest write;
    write.peer = victim;
    write.source = srd::Qpn{10};
    write.destination = srd::Qpn{9};
    write.qkey = told.qkey.value();
    write.cookie = request.cookie;
    write.segments[0] = {bytes.data(), 8};
    write.remote_key = srd::RegionKey{static_cast<std::uint32_t>(rng.next()) & 0xFFFFFF};
    write.remote_address = reinterpret_cast<std::uintptr_t>(group.memory[1].data());
    write.immediate = static_cast<std::uint32_t>(rng.next());
    (void)attacker.post(write);
    lab.run_for(20us);
  }
  EXPECT_GT(lab.rma(1).counters().strays, 0U);
  EXPECT_GT(lab.rma(1).counters().malformed, 0U);
  EXPECT_TRUE(group.memory[1] == before);
  EXPECT_FALSE(lab.rma(1).has_failed(lab.member(1).group));
  EXPECT_EQ(lab.outcome(0, lab.put(0, 1, {}, 0, {}, RmaSignal{{group.window, 0}, 9, true})),
            Outcome::ok);
  EXPECT_EQ(word_at(group.memory[1], 0), 9U);
}

// The memory behind the window is the caller's again: nothing may be written, and the member that
// put must hear of it.
TEST(RmaFaults, PutToAWindowThatIsGoneFails) {
  RmaGroup group(2);
  RmaLab& lab = group.lab;
  const std::vector<std::byte> before = group.memory[1];
  ASSERT_TRUE(lab.rma(1).deregister(lab.member(1).group, group.window));
  EXPECT_EQ(lab.outcome(0, lab.put(0, 1, {group.window, 0}, 64, {group.window, 0})),
            Outcome::remote_error);
  EXPECT_TRUE(group.memory[1] == before);
  EXPECT_TRUE(lab.rma(0).has_failed(lab.member(0).group));
}

// All kinds and flags, one byte too few, and another version.
TEST(RmaFaults, ParserTakesExactlyWhatIsWritten) {
  RmaMessage message;
  for (int kind = 0; kind < 256; ++kind) {
    for (const int flags : {0, 1, 2}) {
      message.kind = static_cast<std::uint8_t>(kind);
      message.flags = static_cast<std::uint8_t>(flags);
      const auto bytes = std::as_bytes(std::span{&message, 1});
      const bool valid =
          kind >= 1 && kind <= 6 && (flags == 0 || (flags == 1 && kind == int(RmaKind::window)));
      EXPECT_EQ(nccl::parse_rma(bytes).has_value(), valid);
      EXPECT_FALSE(nccl::parse_rma(bytes.first(bytes.size() - 1)).has_value());
    }
  }
  message = {};
  message.kind = 1;
  message.version = 2;
  EXPECT_FALSE(nccl::parse_rma(std::as_bytes(std::span{&message, 1})).has_value());
}

}  // namespace
}  // namespace weft::testing
