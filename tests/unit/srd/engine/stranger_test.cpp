// Owns the proof of how much leaves for peers that have granted nothing yet, where the network
// reports what it loses. [wire 4.8]
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/srd/engine/sender_lab.hpp"

namespace weft::srd {
namespace {

class Stranger : public SenderTest {
 protected:
  static constexpr std::uint32_t kWindow = 16;  // packets: half of it is the longest short message
  explicit Stranger(bool reported = true) : SenderTest(trimming(reported)) {}

  static EngineConfig trimming(bool reported) {
    EngineConfig config = configure();
    config.receiver_credits = true;
    config.trimming = reported;
    config.credit_window = kWindow * kMtu;
    config.line_rate = Rate::gbps(1000);
    config.max_work_requests = 1024;
    return config;
  }
  Peer& stranger(std::uint32_t i) {
    PeerKey key;
    key.address.bytes[14] = static_cast<std::byte>(i / 256);
    key.address.bytes[15] = static_cast<std::byte>(i % 256);
    return *parts_.peers.find_or_make(key);
  }
  // Packets are whole but the last one.
  void post(Peer& to, std::uint32_t bytes) {
    (void)request_to(to, WorkKind::write, bytes, std::max(1U, (bytes + kMtu - 1) / kMtu));
  }
  // Packets of data that leave for it now.
  std::uint64_t blind(Peer& to) {
    const std::uint64_t before = parts_.counters.data_pkts;
    TxPacket out;
    while (parts_.sender(to).transmit(now_, out)) {
    }
    return parts_.counters.data_pkts - before;
  }
};

TEST_F(Stranger, GetsAllOfWhatFitsIntoHalfOfTheWindow) {
  post(stranger(1), kWindow / 2 * kMtu);
  EXPECT_EQ(blind(stranger(1)), kWindow / 2);
  post(stranger(2), kWindow / 4 * kMtu + 1);  // two share the line
  EXPECT_EQ(blind(stranger(2)), 2U);
}

TEST_F(Stranger, GetsAByteAtTheBoundAndNotBeyond) {
  post(stranger(1), kWindow / 2 * kMtu - 1);
  EXPECT_EQ(blind(stranger(1)), kWindow / 2);
  parts_.works.abandon_if(stranger(1), Status::flushed, [](const Work&) { return true; });
  post(stranger(2), kWindow / 2 * kMtu + 1);
  EXPECT_EQ(blind(stranger(2)), 2U);
}

// To all of them together no more than half of the window, and two packets to each.
TEST_F(Stranger, OneOfManyGetsNoMoreThanItsPart) {
  constexpr std::uint32_t kPeers = 100;
  for (const std::uint32_t packets : {3U, 4U, 8U}) {
    std::uint64_t sent = 0;
    const std::uint32_t first = packets * 200;
    for (std::uint32_t i = 0; i < kPeers; ++i) {
      post(stranger(first + i), packets * kMtu);
    }
    for (std::uint32_t i = 0; i < kPeers; ++i) {
      sent += blind(stranger(first + i));
    }
    EXPECT_LE(sent, kWindow / 2 + 2 * kPeers) << packets;
    for (std::uint32_t i = 0; i < kPeers; ++i) {
      parts_.works.abandon_if(stranger(first + i), Status::flushed,
                              [](const Work&) { return true; });
    }
  }
}

// They were met one after the other by a word that takes no credit, as a barrier does; each was
// alone then. Now all are sent to at once.
TEST_F(Stranger, OneOfManyThatWereMetAloneGetsNoMoreThanItsPart) {
  constexpr std::uint32_t kPeers = 100;
  for (std::uint32_t i = 1; i <= kPeers; ++i) {
    post(stranger(i), 0);
    EXPECT_EQ(blind(stranger(i)), 1U);
    parts_.works.abandon_if(stranger(i), Status::ok, [](const Work&) { return true; });
  }
  for (std::uint32_t i = 1; i <= kPeers; ++i) {
    post(stranger(i), kWindow / 2 * kMtu);
  }
  std::uint64_t sent = 0;
  for (std::uint32_t i = 1; i <= kPeers; ++i) {
    sent += blind(stranger(i));
  }
  EXPECT_LE(sent, kWindow / 2 + 2 * kPeers);
}

// It is cancelled before it leaves, and asked for already.
TEST_F(Stranger, AMessageThatIsCancelledTakesNothingFromTheNextOne) {
  post(stranger(1), kWindow / 4 * kMtu);
  parts_.works.abandon_if(stranger(1), Status::flushed, [](const Work&) { return true; });
  post(stranger(1), kWindow / 2 * kMtu);
  EXPECT_EQ(blind(stranger(1)), kWindow / 2);
}

// It gets a message for nothing once, not one for each silence.
TEST_F(Stranger, OneThatNeverAnswersGetsOneMessageForNothing) {
  post(stranger(1), kWindow / 2 * kMtu);
  EXPECT_EQ(blind(stranger(1)), kWindow / 2);
  Sender& sender = parts_.sender(stranger(1));
  while (!ended()) {
    now_ = sender.next_deadline();
    ASSERT_NE(now_, kNever);
    sender.on_timeout(now_);
    (void)blind(stranger(1));
  }
  now_ += 1h;
  post(stranger(1), kWindow / 4 * kMtu);
  EXPECT_LE(blind(stranger(1)), 2U);
}

class StrangerWithoutReports : public Stranger {
 protected:
  StrangerWithoutReports() : Stranger(false) {}
};

TEST_F(StrangerWithoutReports, GetsTwoPackets) {
  post(stranger(1), kWindow / 2 * kMtu);
  EXPECT_EQ(blind(stranger(1)), 2U);
}

}  // namespace
}  // namespace weft::srd
