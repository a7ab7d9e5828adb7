// Owns the stories of messengers whose partners die, come back, or never were.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/message_lab.hpp"

namespace weft::testing {
namespace {

using srd::Status;

// Whatever has failed: a small and a large message still come through between the two.
void expect_life_goes_on(MessageLab& lab) {
  const std::uint64_t small = lab[1].receive(0xAA, 100);
  const std::uint64_t large = lab[1].receive(0xBB, 50000);
  lab[0].send(lab[1], 0xAA, 100, {.seed = 31});
  lab[0].send(lab[1], 0xBB, 50000, {.seed = 32});
  ASSERT_TRUE(lab.run_until([&] {
    return lab[1].result(small) != nullptr && lab[1].result(large) != nullptr &&
           lab[0].sends_open() == 0;
  }));
  EXPECT_EQ(lab[1].status(small), Status::ok);
  EXPECT_EQ(lab[1].status(large), Status::ok);
  EXPECT_EQ(first_difference(lab[1].memory(small), 31), 100U);
  EXPECT_EQ(first_difference(lab[1].memory(large), 32), 50000U);
}

// The receiver dies at every stage of a large message and is back at once.
TEST(Failure, RestartOfTheReceiverEndsTheMessageOnce) {
  int ended_in_error = 0;
  for (int at = 0; at < 60; ++at) {
    SCOPED_TRACE(at);
    MessageLab lab(2);
    lab[1].receive(1, 100000);
    const std::uint64_t send = lab[0].send(lab[1], 1, 100000);
    lab.run_for(at * 1us);
    lab.restart(lab[1]);
    lab.run_for(100ms);
    // The new process may also have got the request, as one that came unexpected.
    if (!lab[0].status(send).has_value()) {
      EXPECT_EQ(lab[1].messenger().unexpected(), 1U) << "the sender waits for nobody";
      lab[1].receive(1, 100000);
      lab.run_for(100ms);
    }
    ASSERT_TRUE(lab[0].status(send).has_value());
    ended_in_error += lab[0].status(send) == Status::peer_restarted;
    EXPECT_EQ(lab[0].engine().memory().size(), 0U);
    const auto known = lab[0].engine().history_of(lab[0].address(lab[1]).peer);
    if (known->life != lab[1].engine().config().life) {
      // It was answered before and has waited for nothing since: the next message finds out.
      EXPECT_EQ(lab[0].status(send), Status::ok);
      const std::uint64_t next = lab[0].send(lab[1], 2, 100);
      ASSERT_TRUE(lab.run_until([&] { return lab[0].status(next).has_value(); }));
      EXPECT_EQ(lab[0].status(next), Status::peer_restarted);
    }
    expect_life_goes_on(lab);
  }
  EXPECT_GT(ended_in_error, 5);
}

// The sender dies at every microsecond of a large message: the receive ends well, ends in error, or
// is still posted; it never hangs half filled.
TEST(Failure, RestartOfTheSenderEndsTheReceiveOrLeavesItPosted) {
  int ended_in_error = 0;
  for (int at = 0; at < 60; ++at) {
    SCOPED_TRACE(at);
    MessageLab lab(2);
    const std::uint64_t receive = lab[1].receive(1, 100000);
    lab[0].send(lab[1], 1, 100000, {.seed = 6});
    lab.run_for(at * 1us);
    lab.restart(lab[0]);
    expect_life_goes_on(lab);
    lab.run_for(1s);
    const auto status = lab[1].status(receive);
    if (status == Status::ok) {
      EXPECT_EQ(first_difference(lab[1].memory(receive), 6), 100000U);
    } else if (status.has_value()) {
      EXPECT_EQ(status, Status::peer_restarted);
      ++ended_in_error;
    } else {
      EXPECT_TRUE(lab[1].messenger().cancel(receive)) << "neither posted nor done";
    }
    EXPECT_EQ(lab[1].messenger().unexpected(), 0U);
  }
  EXPECT_GT(ended_in_error, 5);
}

// Nothing is under way between them: only the watch can find out.
TEST(Failure, DeathOfAReceiverThatHasNotPostedYetIsNoticed) {
  MessageLab lab(2);
  const std::uint64_t send = lab[0].send(lab[1], 1, 100000);
  lab.run_for(5ms);
  EXPECT_FALSE(lab[0].status(send).has_value());
  lab.crash(lab[1]);
  ASSERT_TRUE(lab.run_until([&] { return lab[0].status(send).has_value(); }, 5s));
  EXPECT_EQ(lab[0].status(send), Status::unresponsive);
}

// The new life answers the watch at once: no need to wait for a time-out as with a dead one.
TEST(Failure, SilentRestartOfSuchAReceiverIsNoticedSoon) {
  MessageLab lab(2);
  const std::uint64_t send = lab[0].send(lab[1], 1, 100000);
  lab.run_for(5ms);
  lab.restart(lab[1]);
  ASSERT_TRUE(lab.run_until([&] { return lab[0].status(send).has_value(); }, 20ms));
  EXPECT_EQ(lab[0].status(send), Status::peer_restarted);
  expect_life_goes_on(lab);
}

// 4 MB take longer than the 60 us after which the sender dies, so the receiver is in the middle of
// its reads.
TEST(Failure, DeathOfTheSenderWhileItIsReadIsNoticed) {
  MessageLab lab(2);
  const std::uint64_t receive = lab[1].receive(1, 4000000);
  lab[0].send(lab[1], 1, 4000000);
  lab.run_for(60us);
  lab.crash(lab[0]);
  ASSERT_TRUE(lab.run_until([&] { return lab[1].status(receive).has_value(); }, 5s));
  EXPECT_EQ(lab[1].status(receive), Status::unresponsive);
}

TEST(Failure, MessagesToNobodyEndAsUnreachable) {
  MessageLab lab(2);
  lab.crash(lab[1]);
  std::vector<std::uint64_t> sends;
  for (int i = 0; i < 400; ++i) {  // more than may be on their way at a time
    sends.push_back(lab[0].send(lab[1], 1, i % 3 == 0 ? 9000 : 90));
  }
  ASSERT_TRUE(lab.run_until([&] { return lab[0].sends_open() == 0; }, 5s));
  for (const std::uint64_t send : sends) {
    EXPECT_EQ(lab[0].status(send), Status::unreachable);
  }
}

// Numbers of messages that were lost in the partition must not be waited for afterwards: sender and
// receiver begin a new epoch.
TEST(Failure, APartitionFailsWhatWasUnderWayAndHealsIntoANewEpoch) {
  MessageLab lab(2);
  lab[1].receive(1, 100);
  lab[0].send(lab[1], 1, 100);
  ASSERT_TRUE(lab.run_until_done());
  lab.network().partition(0, 1);
  lab.network().partition(1, 0);
  for (int i = 0; i < 50; ++i) {
    lab[0].send(lab[1], 2, 100 * static_cast<std::size_t>(i));
  }
  ASSERT_TRUE(lab.run_until([&] { return lab[0].sends_open() == 0; }, 5s));
  lab.network().heal();
  expect_life_goes_on(lab);
}

// One message of an epoch is lost for good; those behind it have arrived. They are not lost too.
TEST(Failure, WhatArrivedBehindALostMessageIsDeliveredWhenTheNextEpochBegins) {
  MessageLab lab(2);
  lab[1].receive(1, 100);
  lab[0].send(lab[1], 1, 100);
  ASSERT_TRUE(lab.run_until_done());
  // The second message never arrives, and neither do acknowledgements.
  lab.network().lose_next(world::Packet::send, 1);
  const std::uint64_t lost = lab[0].send(lab[1], 1, 41, {.seed = 1});
  lab.run_for(1us);
  const std::uint64_t arrives = lab[0].send(lab[1], 1, 42, {.seed = 2});
  lab.run_for(6us);
  lab.network().partition(0, 1);
  lab.network().partition(1, 0);
  ASSERT_TRUE(lab.run_until([&] { return lab[0].sends_open() == 0; }, 5s));
  EXPECT_EQ(lab[0].status(lost), Status::unresponsive);
  EXPECT_NE(lab[0].status(arrives), std::nullopt);
  lab.network().heal();
  const std::uint64_t first = lab[1].receive(1, 100);
  const std::uint64_t second = lab[1].receive(1, 100);
  lab[0].send(lab[1], 1, 43, {.seed = 3});
  ASSERT_TRUE(lab.run_until_done());
  EXPECT_EQ(lab[1].result(first)->length, 42U);
  EXPECT_EQ(lab[1].result(second)->length, 43U);
}

// A large message that waits for its receive, and a small one that comes later: both ends of the
// protocol are tried.
TEST(Failure, AMessengerThatIsClosedRefusesTheMessage) {
  MessageLab lab(2);
  const std::uint64_t waiting = lab[0].send(lab[1], 1, 100000);
  lab.run_for(1ms);
  // Its engine lives on.
  for (std::uint32_t qpn = 8; qpn < 11; ++qpn) {
    lab[1].engine().close_endpoint(srd::Qpn{qpn});
  }
  const std::uint64_t small = lab[0].send(lab[1], 1, 10);
  ASSERT_TRUE(lab.run_until([&] { return lab[0].sends_open() == 0; }, 5s));
  EXPECT_EQ(lab[0].status(waiting), Status::bad_qpn);
  EXPECT_EQ(lab[0].status(small), Status::bad_qpn);
}

// The watch is answered, but not by a messenger.
TEST(Failure, AnEndpointThatAcceptsTheWatchIsNoMessenger) {
  MessageLab lab(2);
  const std::uint64_t waiting = lab[0].send(lab[1], 1, 100000);
  lab.run_for(1ms);
  for (std::uint32_t qpn = 8; qpn < 11; ++qpn) {
    lab[1].engine().close_endpoint(srd::Qpn{qpn});
  }
  ASSERT_TRUE(lab[1].engine().open_endpoint(srd::Qpn{10}, {.qkey = 0x1CE, .receive_depth = 8}));
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(lab[1].engine().post_receive(srd::Qpn{10}, {}), srd::PostResult::accepted);
  }
  for (int i = 0; i < 1000 && lab[0].sends_open() != 0; ++i) {
    lab.world().run_until(lab.world().now() + 1ms);
    lab[0].collect();  // the other messenger is gone
  }
  EXPECT_EQ(lab[0].status(waiting), Status::bad_qpn);
}

// Told as such, and not as silence: it is a mistake of the configuration.
TEST(Failure, AWrongQkeyIsTold) {
  MessageLab lab(2);
  srd::MessageAddress wrong = lab[0].address(lab[1]);
  wrong.qkey = 99;
  ASSERT_EQ(lab[0].messenger().post_send({.to = wrong, .cookie = 1}), srd::PostResult::accepted);
  srd::MessageCompletion done;
  lab.world().run_until(lab.world().now() + 1ms);
  lab[0].messenger().progress();
  ASSERT_EQ(lab[0].messenger().poll({&done, 1}), 1U);
  EXPECT_EQ(done.status, Status::bad_qkey);
}

// The next life of a sender starts its numbers anew; the receiver must not take them for old ones.
TEST(Failure, ManyLivesOfASenderAreToldApart) {
  MessageLab lab(2);
  for (int life = 0; life < 10; ++life) {
    for (int i = 0; i < 5; ++i) {
      const std::uint64_t receive = lab[1].receive(1, 100);
      lab[0].send(lab[1], 1, static_cast<std::size_t>(10 * life + i));
      ASSERT_TRUE(lab.run_until([&] { return lab[1].result(receive) != nullptr; }));
      EXPECT_EQ(lab[1].result(receive)->length,
                10U * static_cast<unsigned>(life) + static_cast<unsigned>(i));
    }
    lab.restart(lab[0]);
  }
}

}  // namespace
}  // namespace weft::testing
