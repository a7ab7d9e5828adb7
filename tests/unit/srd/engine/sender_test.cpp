// Owns the proof of what a sender keeps true between two calls: that its peer has a turn or a
// deadline as long as something waits, and that each work ends. [wire 4.1]
#include "srd/engine/sender.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include "srd/engine/engine_parts.hpp"

namespace weft::srd {
namespace {

using namespace std::chrono_literals;
using wire::PacketType;

constexpr TimePoint kStart{Duration{1s}};
constexpr Psn kFirst{100};
constexpr std::uint32_t kMtu = 64;
constexpr Qpn kQpn{17};
constexpr Qpn kTheirs{99};

// One sender whose peer is the test. There is no engine around it: a turn is a call of transmit(),
// and a deadline is reached by pass().
class SenderTest : public ::testing::Test {
 protected:
  explicit SenderTest(const EngineConfig& config = configure()) : parts_(config, nullptr, nullptr) {
    parts_.endpoints.insert(kQpn, {});
  }

  static EngineConfig configure() {
    EngineConfig config;
    config.first_psn = kFirst;
    config.max_work_requests = 16;
    config.mtu_payload = kMtu;
    config.checksum = false;
    config.paths = 2;
    // The plainest of each, so that no policy decides what a test sees: paths in turn, a window
    // that stays.
    config.path_selector = "oblivious";
    config.congestion_control = "fixed";
    config.max_rto = 1ms;
    config.peer_timeout = 5ms;
    return config;
  }

  // A request of so many packets.
  Work& request(WorkKind kind = WorkKind::send, std::uint32_t packets = 1) {
    const auto [index, work] = parts_.works.begin_request(peer_, *parts_.endpoints.find(kQpn), kind,
                                                          kTheirs, packets * kMtu);
    work->data[0] = memory_.data();
    work->lengths[0] = work->length;
    work->packets = packets;
    work->message = sender_.number_message();
    work->cookie = index;
    sender_.enqueue_request(index, *work);
    return *work;
  }
  std::optional<wire::DataHeader> transmit() {
    TxPacket out;
    if (!sender_.transmit(now_, out)) {
      return std::nullopt;
    }
    wire::DataHeader header{};
    const bool loaded = wire::load(std::span(out.header).first(out.header_size), header);
    return loaded ? header : wire::DataHeader{};
  }
  // All packets that may leave now.
  std::vector<wire::DataHeader> transmit_all() {
    std::vector<wire::DataHeader> packets;
    while (const auto packet = transmit()) {
      packets.push_back(*packet);
    }
    return packets;
  }
  static PacketType type_of(const wire::DataHeader& header) {
    return static_cast<PacketType>(header.common.type);
  }

  // The peer grants so many credits, in all, and says nothing else.
  void grant(std::uint32_t credits) {
    wire::AckHeader header{};
    header.common.version = wire::kVersion;
    header.common.type = static_cast<std::uint8_t>(PacketType::ack);
    header.common.source_life = 1;
    header.common.destination_life = 1;
    header.common.flags = wire::kNoWindow | wire::kCreditValid;
    header.credit = credits;
    std::array<std::byte, sizeof header> bytes{};
    wire::store(bytes.data(), header);
    const auto packet = wire::parse_packet(bytes);
    ASSERT_TRUE(packet.ok());
    sender_.on_ack(now_, now_, packet);
  }
  // Everything before `cumulative` has arrived, and the numbers in `word`, of the 64 around it.
  void acknowledge(Psn cumulative, std::uint64_t word = 0) { tell(cumulative, word, {}); }
  // The peer tells the outcome of one packet.
  void answer(Psn psn, std::uint8_t code, std::uint8_t attempt = 0) {
    wire::ResultEntry entry{};
    entry.psn = psn.value();
    entry.code = code;
    // Which transmission the news is of: the first one is 0.
    entry.attempt = attempt;
    tell(kFirst, 0, entry);
  }
  void tell(Psn cumulative, std::uint64_t word, const std::optional<wire::ResultEntry>& result,
            const wire::DataHeader* echoed = nullptr) {
    wire::AckHeader header{};
    header.common.version = wire::kVersion;
    header.common.type = static_cast<std::uint8_t>(PacketType::ack);
    header.common.source_life = 1;
    header.common.destination_life = 1;
    header.cumulative = cumulative.value();
    if (echoed != nullptr) {
      header.common.flags = wire::kEchoValid;
      header.common.path = echoed->common.path;
      header.common.attempt = echoed->common.attempt;
      header.echo_psn = echoed->psn;
      header.echo_send_time = echoed->send_time;
    }
    header.sack_words = word != 0 ? 1 : 0;
    header.results = result ? 1 : 0;
    std::array<std::byte, 256> bytes{};
    std::byte* end = bytes.data();
    const auto add = [&](const auto& part) {
      wire::store(end, part);
      end += sizeof part;
    };
    add(header);
    if (word != 0) {
      add(wire::big_uint64_buf_t{word});
    }
    if (result) {
      add(*result);
    }
    const auto packet =
        wire::parse_packet(std::span(bytes).first(static_cast<std::size_t>(end - bytes.data())));
    ASSERT_TRUE(packet.ok());
    sender_.on_ack(now_, now_, packet);
  }

  // The next deadline comes, and no answer.
  void pass() {
    now_ = sender_.next_deadline();
    sender_.on_timeout(now_);
  }
  std::optional<Completion> completed() {
    const Completion* const next = parts_.completions.next();
    if (next == nullptr) {
      return std::nullopt;
    }
    const Completion completion = *next;
    parts_.completions.pop();
    return completion;
  }
  std::optional<Status> ended() {
    const auto completion = completed();
    return completion ? std::optional{completion->status} : std::nullopt;
  }

  std::array<std::byte, std::size_t{64} * kMtu> memory_{};
  TimePoint now_ = kStart;
  EngineParts parts_;
  Peer& peer_ = *parts_.peers.find_or_make(PeerKey{});
  Sender& sender_ = parts_.sender(peer_);
};

// --- Turns and deadlines

TEST_F(SenderTest, HasNeitherTurnNorDeadlineWithoutWork) {
  EXPECT_FALSE(sender_.has_work());
  EXPECT_FALSE(transmit());
  EXPECT_EQ(sender_.next_deadline(), kNever);
  EXPECT_EQ(parts_.schedule.first_ready(), nullptr);
}

TEST_F(SenderTest, WorkMakesThePeerReady) {
  (void)request();
  EXPECT_TRUE(sender_.has_work());
  EXPECT_EQ(parts_.schedule.first_ready(), &peer_);
}

TEST_F(SenderTest, APacketInFlightHasADeadline) {
  (void)request();
  ASSERT_TRUE(transmit());
  EXPECT_FALSE(sender_.has_work());
  EXPECT_NE(sender_.next_deadline(), kNever);
  EXPECT_LE(parts_.schedule.next_due(), sender_.next_deadline());
}

TEST_F(SenderTest, WhatIsAcknowledgedHasNoDeadline) {
  (void)request();
  ASSERT_TRUE(transmit());
  acknowledge(kFirst.plus(1));
  EXPECT_EQ(ended(), Status::ok);
  EXPECT_EQ(sender_.next_deadline(), kNever);
}

// --- Packets

TEST_F(SenderTest, NumbersItsPackets) {
  const std::uint32_t message = request(WorkKind::write, 2).message;
  const auto packets = transmit_all();
  ASSERT_EQ(packets.size(), 2U);
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(type_of(packets[i]), PacketType::write);
    EXPECT_EQ(packets[i].psn.value(), kFirst.plus(i).value());
    EXPECT_EQ(packets[i].back.value(), i) << "from the oldest number that is not settled";
    EXPECT_EQ(packets[i].message.value(), message);
    EXPECT_EQ(packets[i].remote_address.value(), i * kMtu);
    EXPECT_EQ(packets[i].payload_length.value(), kMtu);
    EXPECT_EQ(packets[i].message_length.value(), 2 * kMtu);
  }
  EXPECT_EQ(packets[0].common.flags & wire::kLastOfMessage, 0);
  EXPECT_NE(packets[1].common.flags & wire::kLastOfMessage, 0);
  EXPECT_NE(packets[1].common.flags & wire::kAckRequested, 0) << "nothing comes behind it";
}

TEST_F(SenderTest, AWorkEndsWithItsLastPacket) {
  const Work& work = request(WorkKind::write, 3);
  ASSERT_EQ(transmit_all().size(), 3U);
  EXPECT_EQ(work.outstanding, 3U);
  acknowledge(kFirst.plus(2));
  EXPECT_EQ(work.outstanding, 1U);
  EXPECT_EQ(completed(), std::nullopt);
  acknowledge(kFirst.plus(3));
  EXPECT_EQ(ended(), Status::ok);
}

// Sixteen packets are posted first, and one behind them.
TEST_F(SenderTest, ShortMessagesTakeTurnsWithALongOne) {
  (void)request(WorkKind::write, 16);
  (void)request(WorkKind::send);
  const auto first = transmit();
  const auto second = transmit();
  ASSERT_TRUE(first && second);
  EXPECT_NE(type_of(*first), type_of(*second));
}

TEST_F(SenderTest, AnAcknowledgementOfWhatNeverLeftIsDropped) {
  (void)request();
  ASSERT_TRUE(transmit());
  acknowledge(kFirst.plus(2));
  EXPECT_EQ(completed(), std::nullopt);
  EXPECT_EQ(parts_.counters.drops[static_cast<std::size_t>(DropReason::ack_not_sent)], 1U);
}

TEST_F(SenderTest, AddressesTheLatestLife) {
  sender_.address(Life{7});
  (void)request();
  const auto packet = transmit();
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->common.destination_life.value(), 7U);
}

// --- Losses

// As long as no round trip was measured, it may only be waiting.
TEST_F(SenderTest, WithoutAnAnswerAPacketIsAskedForAndThenLeavesAgainAlongAnotherPath) {
  (void)request();
  const auto first = transmit();
  ASSERT_TRUE(first);
  std::optional<wire::DataHeader> again;
  std::size_t probes = 0;
  for (int i = 0; i < 100 && !again; ++i) {
    pass();
    for (const wire::DataHeader& packet : transmit_all()) {
      if (type_of(packet) == PacketType::probe) {
        ++probes;
      } else {
        again = packet;
      }
    }
  }
  EXPECT_GT(probes, 0U);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->psn.value(), first->psn.value());
  EXPECT_EQ(again->common.attempt, 1);
  EXPECT_NE(again->common.path.value(), first->common.path.value());
  EXPECT_NE(again->common.flags & wire::kAckRequested, 0);
  EXPECT_EQ(parts_.counters.lost_by_timeout, 1U);
}

TEST_F(SenderTest, WhatWasOvertakenOnItsPathIsLost) {
  const Work& work = request(WorkKind::write, 6);
  ASSERT_EQ(transmit_all().size(), 6U);  // three along each path
  // All but the first one have arrived; the word begins with a multiple of 64.
  acknowledge(kFirst, std::uint64_t{0b11111} << (kFirst.plus(1).value() % 64));
  EXPECT_EQ(work.outstanding, 1U);
  EXPECT_EQ(parts_.counters.lost_by_gap, 1U);
  EXPECT_EQ(parts_.schedule.first_ready(), &peer_);
  const auto again = transmit();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->psn.value(), kFirst.value());
  EXPECT_EQ(again->common.attempt, 1);
}

TEST_F(SenderTest, WhatWasTrimmedLeavesAgainAtOnce) {
  (void)request();
  ASSERT_TRUE(transmit());
  answer(kFirst, wire::kResultTrimmed);
  const auto again = transmit();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->common.attempt, 1);
  answer(kFirst, wire::kResultTrimmed);
  EXPECT_FALSE(transmit()) << "the news is of the first transmission";
}

// --- Refusals

TEST_F(SenderTest, ARefusalEndsTheWork) {
  (void)request();
  ASSERT_TRUE(transmit());
  answer(kFirst, static_cast<std::uint8_t>(Status::bad_qkey));
  EXPECT_EQ(ended(), Status::bad_qkey);
  EXPECT_FALSE(transmit());
}

TEST_F(SenderTest, AReceiverThatWasNotReadyIsAskedAgainWithANewNumber) {  // [wire 4.3]
  (void)request();
  ASSERT_TRUE(transmit());
  answer(kFirst, static_cast<std::uint8_t>(Status::receiver_not_ready));
  EXPECT_EQ(completed(), std::nullopt);
  EXPECT_FALSE(transmit()) << "not at once";
  EXPECT_EQ(sender_.next_deadline(), now_ + parts_.config.rnr_delay);
  EXPECT_LE(parts_.schedule.next_due(), sender_.next_deadline());
  pass();
  const auto again = transmit();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->psn.value(), kFirst.plus(1).value());
  EXPECT_EQ(again->common.attempt, 0);
}

TEST_F(SenderTest, AReceiverIsAskedNoMoreOftenThanWasWanted) {
  request().rnr_retry = 1;
  ASSERT_TRUE(transmit());
  answer(kFirst, static_cast<std::uint8_t>(Status::receiver_not_ready));
  pass();
  ASSERT_TRUE(transmit());
  answer(kFirst.plus(1), static_cast<std::uint8_t>(Status::receiver_not_ready));
  EXPECT_EQ(ended(), Status::receiver_not_ready);
}

TEST_F(SenderTest, WhatWasPutOffLeavesLaterWithItsNumber) {
  (void)request();
  ASSERT_TRUE(transmit());
  answer(kFirst, wire::kResultDeferred);
  EXPECT_FALSE(transmit());
  EXPECT_EQ(sender_.next_deadline(), now_ + parts_.config.rnr_delay);
  pass();
  const auto again = transmit();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->psn.value(), kFirst.value());
  EXPECT_EQ(again->common.attempt, 1);
}

// --- Work that is withdrawn

// Two of four packets have left when the work is withdrawn.
TEST_F(SenderTest, WithdrawnWorkCountsAsSettled) {
  const Work& work = request(WorkKind::write, 4);
  ASSERT_TRUE(transmit());
  ASSERT_TRUE(transmit());
  parts_.works.abandon(static_cast<std::uint32_t>(work.cookie), Status::flushed);
  EXPECT_EQ(ended(), Status::flushed);
  EXPECT_FALSE(transmit());
  EXPECT_EQ(sender_.next_deadline(), kNever);
  (void)request();
  const auto next = transmit();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->psn.value(), kFirst.plus(2).value());
  EXPECT_EQ(next->back.value(), 0U) << "so the peer does not wait for the withdrawn ones";
}

// --- The end of a peer

class GivenUp : public SenderTest {
 protected:
  // Until the request has ended: the peer never answers.
  std::optional<Status> wait_in_vain() {
    (void)request();
    for (int i = 0; i < 100; ++i) {
      (void)transmit_all();
      if (const auto status = ended()) {
        return status;
      }
      pass();
    }
    return std::nullopt;
  }
};

TEST_F(GivenUp, APeerThatWasNeverHeardIsUnreachable) {
  EXPECT_EQ(wait_in_vain(), Status::unreachable);
  EXPECT_GE(now_ - kStart, parts_.config.peer_timeout);
}

TEST_F(GivenUp, APeerThatHasAnsweredBeforeIsUnresponsive) {
  (void)request();
  ASSERT_TRUE(transmit());
  acknowledge(kFirst.plus(1));
  EXPECT_EQ(ended(), Status::ok);
  EXPECT_EQ(wait_in_vain(), Status::unresponsive);
}

// A peer that is given up is not bothered until the program wants something of it again.
TEST_F(GivenUp, HasNothingInFlightAndLeavesItsPeerAlone) {
  ASSERT_TRUE(wait_in_vain());
  EXPECT_TRUE(sender_.muted());
  EXPECT_FALSE(transmit());
  EXPECT_EQ(sender_.next_deadline(), kNever);
}

TEST_F(GivenUp, TriesAgainWithTheNextRequest) {
  ASSERT_TRUE(wait_in_vain());
  (void)request();
  EXPECT_FALSE(sender_.muted());
  const auto packet = transmit();
  ASSERT_TRUE(packet);
  EXPECT_EQ(type_of(*packet), PacketType::send);
  acknowledge(Psn{packet->psn.value()}.plus(1));
  EXPECT_EQ(ended(), Status::ok);
}

// --- Credits [wire 4.8]

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

// --- Runs along one path

class SenderInRuns : public SenderTest {
 protected:
  static constexpr std::uint32_t kRun = 4;
  SenderInRuns() : SenderTest(in_runs()) {}

  static EngineConfig in_runs() {
    EngineConfig config = configure();
    config.paths = 16;
    config.path_selector = "reps";
    config.path_run = kRun * (kMtu + sizeof(wire::DataHeader));
    return config;
  }
};

// REPS takes each path as often as it has come back: if all packets of a run brought theirs back,
// the newest run's path would fill its ring, and all others would be forgotten.
TEST_F(SenderInRuns, AsManyPathsComeBackAsWereTaken) {
  constexpr std::uint32_t kRuns = 4;
  Psn next = kFirst;
  for (int round = 0; round < 50; ++round) {
    (void)request(WorkKind::write, kRuns * kRun);
    const auto packets = transmit_all();
    ASSERT_EQ(packets.size(), kRuns * kRun);
    std::set<unsigned> paths;
    for (std::uint32_t i = 0; i < packets.size(); ++i) {
      const unsigned path = packets[i].common.path.value();
      EXPECT_EQ(path, packets[i / kRun * kRun].common.path.value()) << i;
      paths.insert(path);
    }
    ASSERT_EQ(paths.size(), kRuns) << "round " << round;
    now_ += 10us;
    // In the middle of a run, too.
    acknowledge(next.plus(kRun + 2));
    acknowledge(next = next.plus(kRuns * kRun));
    ASSERT_EQ(ended(), Status::ok);
  }
}

TEST_F(SenderInRuns, WhatLeavesLaterBeginsARun) {
  std::set<unsigned> paths;
  for (int i = 0; i < 4; ++i) {
    (void)request();
    const auto packet = transmit();
    ASSERT_TRUE(packet);
    paths.insert(packet->common.path.value());
    now_ += 1ns;
  }
  EXPECT_EQ(paths.size(), 4U);
}

// --- Congestion

class RefusedSender : public SenderTest {
 protected:
  RefusedSender() : SenderTest(in_a_small_network()) {}

  static EngineConfig in_a_small_network() {
    EngineConfig config = configure();
    config.congestion_control = "swift";  // the one whose window falls to a part of a packet
    config.line_rate = Rate::gbps(1);     // which holds 14 packets
    config.peer_timeout = 1s;
    return config;
  }
  // The peer has got the packet along an empty network, and wants it for no price.
  void refuse(const wire::DataHeader& packet) {
    wire::ResultEntry entry{};
    entry.psn = packet.psn.value();
    entry.code = static_cast<std::uint8_t>(Status::bad_key);
    entry.attempt = packet.common.attempt;
    tell(kFirst, 0, entry, &packet);
  }
};

TEST_F(RefusedSender, WhatIsRefusedHasCrossedTheNetwork) {
  (void)request(WorkKind::write, 16);
  for (int losses = 0; losses < 40; ++losses) {
    (void)transmit_all();
    pass();
  }
  ASSERT_LE(transmit_all().size(), 1U) << "the losses have left a window";
  std::size_t at_once = 0;
  for (int round = 0; round < 400; ++round) {
    now_ += 1ms;
    if (sender_.next_deadline() <= now_) {
      sender_.on_timeout(now_);
    }
    const auto packets = transmit_all();
    at_once = std::max(at_once, packets.size());
    now_ += 5us;
    for (const auto& packet : packets) {
      if (type_of(packet) == PacketType::write) {
        refuse(packet);
      }
    }
    while (ended()) {
    }
    if (!sender_.has_work()) {
      (void)request(WorkKind::write, 16);
    }
  }
  EXPECT_GT(at_once, 4U);
}

}  // namespace
}  // namespace weft::srd
