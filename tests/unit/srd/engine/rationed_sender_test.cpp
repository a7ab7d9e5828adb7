// Owns the proof of how a sender asks for credits, waits for them and gets over what is lost. [wire
// 4.8]
#include <gtest/gtest.h>

#include "tests/unit/srd/engine/sender_lab.hpp"

namespace weft::srd {
namespace {

class RationedSender : public SenderTest {
 protected:
  RationedSender() : SenderTest(rationed()) {}

  static EngineConfig rationed() {
    EngineConfig config = configure();
    config.receiver_credits = true;
    // One packet may leave without a credit.
    config.credit_window = kMtu;
    return config;
  }
};

TEST_F(RationedSender, AsksForCreditsAndWaitsForThem) {
  (void)request(WorkKind::write, 32);
  const auto packets = transmit_all();
  ASSERT_FALSE(packets.empty());
  EXPECT_EQ(parts_.counters.credit_requests, 1U);
  EXPECT_LT(packets.size(), 32U);
  EXPECT_NE(sender_.next_deadline(), kNever) << "the request may be lost";
}

// Acknowledgements of what left together with the request do not say that it was heard.
TEST_F(RationedSender, AsksAgainSoonIfTheRequestIsLost) {
  (void)request(WorkKind::write, 32);
  const auto packets = transmit_all();
  now_ += parts_.config.base_rtt;
  acknowledge(kFirst.plus(static_cast<std::uint32_t>(packets.size()) - 1));  // one was the request
  ASSERT_FALSE(transmit());
  const TimePoint acknowledged = now_;
  pass();
  EXPECT_LE(now_ - acknowledged, 2 * (parts_.patience.min_rto + parts_.patience.ack_delay));
  EXPECT_TRUE(transmit());
  EXPECT_EQ(parts_.counters.credit_requests, 2U);
}

// Bytes of a read that cannot be read any more never leave: what was granted for them is no credit
// for others, which would make a sender whose reads fail as good as unrationed.
TEST_F(RationedSender, KeepsNoCreditForAReadThatFails) {
  const auto [index, response] = parts_.works.begin_response(peer_, kQpn, kTheirs, 32 * kMtu);
  response->packets = 32;
  response->key = 5;  // of no region
  sender_.enqueue_response(index, *response);
  (void)transmit_all();
  grant(16 * kMtu / wire::kCreditUnit + 1);  // all that was asked for
  (void)transmit_all();
  ASSERT_EQ(parts_.counters.data_pkts, 32U);
  acknowledge(kFirst.plus(32));
  (void)request(WorkKind::write, 32);
  EXPECT_LT(transmit_all().size(), 8U);
}

TEST_F(RationedSender, AfterARestartItAsksAnew) {
  (void)request(WorkKind::write, 32);
  (void)transmit_all();
  // As when the peer has a new life, which knows nothing of what was asked before.
  sender_.restart();
  (void)transmit_all();
  EXPECT_EQ(parts_.counters.credit_requests, 2U);
}

// The line belongs to all peers that are being sent to, also when one of them begins anew.
class SenderAmongOthers : public SenderTest {
 protected:
  static constexpr std::uint32_t kOthers = 3;
  static constexpr std::uint32_t kWindow = 16;  // packets
  SenderAmongOthers() : SenderTest(with_a_wide_window()) {}

  static EngineConfig with_a_wide_window() {
    EngineConfig config = configure();
    config.receiver_credits = true;
    config.credit_window = kWindow * kMtu;
    return config;
  }
  void send_to_others() {
    for (std::uint32_t i = 1; i <= kOthers; ++i) {
      PeerKey key;
      key.address.bytes[15] = static_cast<std::byte>(i);
      Peer& other = *parts_.peers.find_or_make(key);
      const auto [index, work] = parts_.works.begin_request(other, *parts_.endpoints.find(kQpn),
                                                            WorkKind::send, kTheirs, kMtu);
      work->packets = 1;
      parts_.sender(other).enqueue_request(index, *work);
    }
  }
};

TEST_F(SenderAmongOthers, RisksNoMoreThanItsShareAfterARestart) {
  send_to_others();
  (void)request(WorkKind::write, 3 * kWindow);
  sender_.restart();
  (void)transmit_all();
  EXPECT_EQ(parts_.counters.data_pkts, kWindow / (kOthers + 1));
}

// Where queues report what they lose, what is lost without a report never was in the receiver's
// way: it needs no new credit.
class SenderAmongPaths : public SenderTest {
 protected:
  static constexpr std::uint16_t kPaths = 8;
  explicit SenderAmongPaths(bool reported = true) : SenderTest(with_reports(reported)) {}

  static EngineConfig with_reports(bool reported) {
    EngineConfig config = configure();
    config.receiver_credits = true;
    config.credit_window = kMtu;
    config.paths = kPaths;
    config.trimming = reported;
    return config;
  }
  // Requests for credit until that packet leaves once more.
  std::size_t requests_until_it_leaves_again(Psn psn) {
    const std::uint64_t before = parts_.counters.credit_requests;
    for (int i = 0; i < 100; ++i) {
      for (const wire::DataHeader& packet : transmit_all()) {
        if (packet.psn.value() == psn.value() && packet.common.attempt != 0) {
          return parts_.counters.credit_requests - before;
        }
      }
      pass();
    }
    ADD_FAILURE() << "it never left again";
    return 0;
  }
  // All but the first packet arrive, of a message for which everything was granted.
  void lose_the_first_of_all() {
    (void)request(WorkKind::write, kPaths);
    (void)transmit_all();
    grant(kPaths * kMtu / wire::kCreditUnit);
    (void)transmit_all();
    ASSERT_EQ(parts_.counters.data_pkts, kPaths);
    now_ += parts_.config.base_rtt;
  }
};

class SenderAmongPathsAndQueues : public SenderAmongPaths {
 protected:
  SenderAmongPathsAndQueues() : SenderAmongPaths(false) {}
};

TEST_F(SenderAmongPaths, SendsAgainWithoutNewCreditWhatAPathHasLost) {
  lose_the_first_of_all();
  const std::uint64_t all_but_the_first = ((std::uint64_t{1} << kPaths) - 2)
                                          << (kFirst.value() % 64);
  acknowledge(kFirst, all_but_the_first);
  EXPECT_EQ(requests_until_it_leaves_again(kFirst), 0U);
}

TEST_F(SenderAmongPaths, AsksForCreditAnewForWhatWasTrimmed) {
  lose_the_first_of_all();
  answer(kFirst, wire::kResultTrimmed);
  (void)transmit_all();
  EXPECT_EQ(parts_.counters.credit_requests, 2U);
}

// The answer may have been lost on a dead path as well as the question.
TEST_F(SenderAmongPaths, AsksAlongSeveralPathsAtOnceAfterSilence) {
  (void)request(WorkKind::write, 32);
  const std::size_t sent = transmit_all().size();
  acknowledge(kFirst.plus(static_cast<std::uint32_t>(sent) - 1));
  std::vector<std::size_t> questions;
  for (int i = 0; i < 3; ++i) {
    pass();
    questions.push_back(transmit_all().size());
  }
  EXPECT_EQ(questions, (std::vector<std::size_t>{1, 4, 4}));
}

TEST_F(SenderAmongPathsAndQueues, AsksOnceATimeWhereQueuesLoseWithoutAReport) {
  (void)request(WorkKind::write, 32);
  const std::size_t sent = transmit_all().size();
  acknowledge(kFirst.plus(static_cast<std::uint32_t>(sent) - 1));
  for (int i = 0; i < 3; ++i) {
    pass();
    EXPECT_EQ(transmit_all().size(), 1U);
  }
}

}  // namespace
}  // namespace weft::srd
