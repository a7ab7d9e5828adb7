// Owns the stories of what one process tells another when it ends: words that come late, twice, not
// at all, or from a process that goes on after all.
#include <gtest/gtest.h>

#include <utility>

#include "srd/wire/srd_header.hpp"
#include "tests/support/leaving.hpp"

namespace weft::testing {
namespace {

using world::NetworkEvent;

// The words that a process says from now on.
class Words {
 public:
  Words(world::VirtualNetwork& network, const Node& from) {
    network.observe([this, host = from.host()](TimePoint, NetworkEvent event, const auto& packet) {
      srd::wire::AckHeader header;
      if (event == NetworkEvent::sent && packet.from == host &&
          world::kind_of(packet.bytes) == Packet::ack && srd::wire::load(packet.bytes, header)) {
        count_ += (header.common.flags & srd::wire::kLeaving) != 0 ? 1 : 0;
      }
    });
  }
  [[nodiscard]] int count() const { return count_; }

 private:
  int count_ = 0;
};

void lose_all_acks_of(Pair& pair, const Node& node) {
  pair.network().add({.kind = Packet::ack, .count = 1000, .from = node.host()});
}
void take_leave(Lab& lab, Node& node, srd::Leave how) {
  node.engine().take_leave(lab.now(), how);
  lab.world().pump();
}
// B has accepted the message, and A does not know.
std::uint64_t send_unheard(Pair& pair) {
  lose_all_acks_of(pair, pair.b);
  const std::size_t before = pair.b.inbox().size();
  const auto sent = pair.a.send(pair.b, "unheard");
  EXPECT_TRUE(pair.run_until([&] { return pair.b.inbox().size() == before + 1; }));
  return sent;
}

// The paths of two words differ in length, and the later one comes first.
TEST(EngineLeaveWords, AnEarlierWordTakesNothingBack) {
  Pair pair;
  pair.b.receive();
  exchange(pair);
  pair.network().delay_next(Packet::ack, 100us);
  take_leave(pair, pair.a, srd::Leave::begin);
  send_unheard(pair);
  take_leave(pair, pair.a, srd::Leave::end);
  pair.run_for(10us);  // that one is there
  pair.crash(pair.a);
  pair.run_for(100us);
  EXPECT_FALSE(begin_to_leave(pair, pair.b));
}

// It says no more than it said the first time.
TEST(EngineLeaveWords, ACopyOfAWordTellsNothingNew) {
  Pair pair;
  pair.b.receive();
  exchange(pair);
  pair.network().duplicate_next(Packet::ack);
  pair.network().delay_next(Packet::ack, 100us);
  take_leave(pair, pair.a, srd::Leave::begin);
  send_unheard(pair);
  pair.run_for(100us);
  EXPECT_TRUE(begin_to_leave(pair, pair.b));
}

// The process that lives on asks nobody who has ended later, and was told that it need not wait.
TEST(EngineLeaveWords, IsSaidOnceToAPeerThatHasSaidIt) {
  Pair pair;
  exchange(pair);
  say_last_words(pair, pair.a);
  pair.run_for(1ms);
  const Words said(pair.network(), pair.b);
  EXPECT_EQ(say_last_words(pair, pair.b), Duration{});
  EXPECT_EQ(leave(pair, pair.b), Duration{});
  EXPECT_EQ(said.count(), 1);
  pair.run_for(1ms);
  EXPECT_EQ(leave(pair, pair.a), Duration{});
}

// It has closed its last connection, and its partner says good-bye: a message whose acknowledgement
// is lost, because the partner ends.
TEST(EngineLeaveWords, APeerThatEndsLaterIsNotAskedWhatItHasHeard) {
  Pair pair;
  pair.a.receive();
  exchange(pair);
  say_last_words(pair, pair.a);
  pair.run_for(1ms);
  lose_all_acks_of(pair, pair.a);
  pair.b.send(pair.a, "good-bye");
  ASSERT_TRUE(pair.run_until([&] { return pair.a.inbox().size() == 2; }));
  leave(pair, pair.b);
  pair.run_for(1ms);
  EXPECT_EQ(leave(pair, pair.a), Duration{});
}

// An acknowledgement is for a life that is known. [wire 5.1]
TEST(EngineLeaveWords, AreNotSaidToAPeerThatHasNeverAnswered) {
  Pair pair;
  pair.partition(pair.a, pair.b);
  pair.a.send(pair.b, "is anybody there?");
  pair.run_for(1ms);
  const Words said(pair.network(), pair.a);
  EXPECT_EQ(leave(pair, pair.a), Duration{});
  EXPECT_EQ(said.count(), 0);
}

TEST(EngineLeaveWords, AreNotSaidToAPeerThatWasGivenUp) {
  Pair pair;
  exchange(pair);
  pair.crash(pair.a);
  const auto sent = pair.b.send(pair.a, "are you there?");
  ASSERT_TRUE(pair.run_until([&] { return pair.b.status(sent).has_value(); }, 100s));
  const Words said(pair.network(), pair.b);
  leave(pair, pair.b);
  EXPECT_EQ(said.count(), 0);
}

// It answered when the process said so for the first time.
TEST(EngineLeaveWords, APeerThatWasGivenUpSinceIsNotWaitedFor) {
  Pair pair;
  exchange(pair);
  lose_all_acks_of(pair, pair.b);
  take_leave(pair, pair.b, srd::Leave::begin);
  pair.crash(pair.a);
  EXPECT_TRUE(pair.b.engine().is_awaited());
  const auto sent = pair.b.send(pair.a, "are you there?");
  ASSERT_TRUE(pair.run_until([&] { return pair.b.status(sent).has_value(); }, 100s));
  EXPECT_FALSE(begin_to_leave(pair, pair.b));
}

// A program that goes on may end again; the first word may have been lost.
TEST(EngineLeaveWords, AreSaidAgainWhenItLeavesAgain) {
  Pair pair;
  exchange(pair);
  const Words said(pair.network(), pair.a);
  for (int times = 1; times <= 3; ++times) {
    take_leave(pair, pair.a, srd::Leave::begin);
    pair.run_for(1ms);
    EXPECT_EQ(said.count(), times);
  }
}

// Who asks again asks those that have not heard, and at its end nobody.
TEST(EngineLeaveWords, QuestionsGoToThoseThatHaveNotAnswered) {
  Lab lab(3);
  Node& b = lab[2];
  b.receive(2);
  for (const std::uint32_t i : {0, 1}) {
    lab[i].send(b, "on");
  }
  ASSERT_TRUE(lab.run_until([&] { return b.inbox().size() == 2; }));
  lab.partition(lab[0], b);
  const Words said(lab.network(), b);
  take_leave(lab, b, srd::Leave::begin);
  lab.run_for(1ms);
  EXPECT_EQ(said.count(), 2);
  take_leave(lab, b, srd::Leave::ask_again);
  EXPECT_EQ(said.count(), 3);
  take_leave(lab, b, srd::Leave::end);
  EXPECT_EQ(said.count(), 3);
}

// There is nothing that it may not have heard.
TEST(EngineLeaveWords, APeerOfWhichNothingHasComeAnswersNothing) {
  Pair pair;
  pair.b.receive();
  pair.network().add({.kind = Packet::send, .count = 1000, .from = pair.b.host()});
  pair.b.send(pair.a, "this is lost");
  pair.a.send(pair.b, "there");
  ASSERT_TRUE(pair.run_until([&] { return pair.a.outstanding() == 0; }));
  const auto sent = [&] { return pair.b.engine().counters().tx_pkts; };
  const auto before = sent();
  EXPECT_EQ(leave(pair, pair.a), Duration{});
  pair.run_for(pair.rtt() / 2);
  EXPECT_EQ(sent(), before);
}

// The process that leaves owes an echo. [wire 4.7]
TEST(EngineLeaveWords, ThePeersProbeIsEchoedAllTheSame) {
  Pair pair;
  pair.b.receive();
  send_unheard(pair);
  bool left = false;
  int echoed = 0;
  pair.network().observe([&](TimePoint now, NetworkEvent event, const auto& packet) {
    if (event == NetworkEvent::delivered && world::kind_of(packet.bytes) == Packet::probe &&
        !std::exchange(left, true)) {
      pair.b.engine().take_leave(now, srd::Leave::begin);
    }
    srd::wire::AckHeader header;
    if (event == NetworkEvent::sent && packet.from == pair.b.host() &&
        srd::wire::load(packet.bytes, header)) {
      echoed += (header.common.flags & srd::wire::kEchoProbe) != 0 ? 1 : 0;
    }
  });
  ASSERT_TRUE(pair.run_until([&] { return left; }));
  pair.run_for(1us);
  EXPECT_EQ(echoed, 1);
}

// The network loses all of a peer for a while, and then it asks.
TEST(EngineLeaveWords, APeerThatWasSilentIsWaitedForAgainWhenItAsks) {
  for (const Packet kind : {Packet::probe, Packet::send}) {
    Pair pair;
    pair.b.receive();
    const auto sent = send_unheard(pair);
    pair.partition(pair.a, pair.b);
    EXPECT_GE(say_last_words(pair, pair.b), 100ms);
    EXPECT_FALSE(begin_to_leave(pair, pair.b));
    pair.rejoin(pair.a, pair.b);
    const Packet other = kind == Packet::probe ? Packet::send : Packet::probe;
    pair.network().add({.kind = other, .count = 1000, .from = pair.a.host()});
    const auto heard = [&] { return pair.b.engine().counters().rx_pkts; };
    const auto before = heard();
    ASSERT_TRUE(pair.run_until([&] { return heard() != before; }));
    EXPECT_TRUE(begin_to_leave(pair, pair.b));
    pair.network().clear_rules();
    leave(pair, pair.b);
    ASSERT_TRUE(pair.run_until_idle(20s));
    EXPECT_EQ(pair.a.status(sent), Status::ok);
  }
}

// The number of a packet that was lost, and that nobody wants any more, is past all that came.
TEST(EngineLeaveWords, APeerThatHasTakenSomethingBackHasHeardAll) {
  for (const bool goes_on : {true, false}) {
    Pair pair;
    pair.b.receive(2);
    exchange(pair);
    send_unheard(pair);
    pair.network().lose_next(Packet::send);
    pair.a.send(pair.b, "never mind");
    pair.run_for(1us);
    pair.a.close(kEndpoint);
    if (!goes_on) {
      leave(pair, pair.a);
      pair.run_for(20us);
    }
    pair.network().clear_rules();
    EXPECT_LE(leave(pair, pair.b), 2 * pair.rtt()) << goes_on;
  }
}

// A word of long ago, as numbers come round.
TEST(EngineLeaveWords, AWordOfHalfTheNumbersAgoSaysNothing) {
  srd::ReceiveWindow window;
  window.advance(Psn{10});
  srd::Parting parting;
  parting.note_leave(window, Psn{11});
  window.advance(Psn{0x40000000});
  window.advance(Psn{0x80000100});
  window.accept(Psn{0x80000100});
  EXPECT_TRUE(parting.take_leave(window, srd::Leave::begin, Psn{1}));
  EXPECT_TRUE(parting.is_awaited(window));
  parting.note_leave(window, Psn{0x80000101});
  EXPECT_FALSE(parting.is_awaited(window)) << "it has said so just now";
}

// It is new, but neither the latest, nor a copy, nor a question.
TEST(EngineLeaveWords, APacketThatFillsAGapIsASignOfLife) {
  Pair pair;
  pair.b.receive(2);
  pair.network().lose_next(Packet::send);
  const auto sent = pair.a.send(pair.b, "one");
  pair.a.send(pair.b, "two");
  ASSERT_TRUE(pair.run_until([&] { return pair.a.engine().counters().rx_pkts != 0; }));
  pair.partition(pair.a, pair.b);
  EXPECT_GE(say_last_words(pair, pair.b), 100ms);
  pair.rejoin(pair.a, pair.b);
  pair.network().add({.kind = Packet::ack, .count = 4, .from = pair.b.host()});
  pair.network().add({.kind = Packet::probe, .count = 1000, .from = pair.a.host()});
  ASSERT_TRUE(pair.run_until([&] { return pair.b.inbox().size() == 2; }, 20s));
  EXPECT_TRUE(begin_to_leave(pair, pair.b));
  leave(pair, pair.b);
  pair.network().clear_rules();
  ASSERT_TRUE(pair.run_until_idle(20s));
  EXPECT_EQ(pair.a.status(sent), Status::ok);
}

TEST(EngineLeaveWords, ANewPacketIsASignOfLife) {
  Pair pair;
  pair.b.receive(2);
  send_unheard(pair);
  pair.partition(pair.a, pair.b);
  say_last_words(pair, pair.b);
  pair.rejoin(pair.a, pair.b);
  pair.network().add({.kind = Packet::probe, .count = 1000, .from = pair.a.host()});
  pair.a.send(pair.b, "new");
  ASSERT_TRUE(pair.run_until([&] { return pair.b.inbox().size() == 2; }));
  EXPECT_TRUE(begin_to_leave(pair, pair.b));
}

TEST(EngineLeaveWords, WhoWasNotAwaitedIsNotSilent) {
  Pair pair;
  pair.b.receive();
  exchange(pair);
  say_last_words(pair, pair.b);
  take_leave(pair, pair.b, srd::Leave::begin);
  send_unheard(pair);  // after it has begun
  EXPECT_FALSE(pair.b.engine().is_awaited());
  pair.b.engine().stop_waiting();
  EXPECT_TRUE(begin_to_leave(pair, pair.b));
}

TEST(EngineLeaveWords, AWordOfAFormerLifeSaysNothing) {
  Pair pair;
  pair.b.receive();
  exchange(pair);
  leave(pair, pair.a);
  pair.run_for(1ms);
  pair.restart(pair.a);
  send_unheard(pair);
  EXPECT_TRUE(begin_to_leave(pair, pair.b));
}

// A later process was told so by a notice, and its word comes before its first packet.
TEST(EngineLeaveWords, AWordThatOvertakesTheFirstMessageIsHeard) {
  Pair pair;
  exchange(pair);
  pair.restart(pair.b);
  pair.b.receive();
  pair.a.write(pair.b, 0, "refused, with a notice");
  pair.run_for(20us);
  ASSERT_EQ(pair.a.engine().counters().peer_restarts, 1U);
  pair.network().delay_next(Packet::send, 50us);
  pair.a.send(pair.b, "new");
  pair.world().pump();
  EXPECT_EQ(leave(pair, pair.a), Duration{});
  const std::size_t before = pair.b.inbox().size();
  ASSERT_TRUE(pair.run_until([&] { return pair.b.inbox().size() != before; }));
  EXPECT_EQ(leave(pair, pair.b), Duration{});
}

// Its number is not zero.
TEST(EngineLeaveWords, WhoHasSentNothingTellsItsFirstNumber) {
  LabConfig config = lab_config();
  config.engine.first_psn = Psn{0xFFFFFFFE};
  Pair pair(config);
  pair.a.receive();
  pair.b.receive();
  pair.b.send(pair.a, "there");
  ASSERT_TRUE(pair.run_until_idle());
  say_last_words(pair, pair.a);
  pair.run_for(1ms);
  send_unheard(pair);
  EXPECT_TRUE(begin_to_leave(pair, pair.b));
}

TEST(EngineLeaveWords, AWordCountsForAWholeWindow) {
  Pair pair;
  exchange(pair);
  pair.b.receive(100);
  for (int n = 0; n < 100; ++n) {
    pair.a.send(pair.b, "on");
  }
  pair.run_for(1us);
  leave(pair, pair.a);
  pair.run_for(1ms);
  EXPECT_EQ(leave(pair, pair.b), Duration{});
}

TEST(EngineLeaveWords, WhoHasLeftAndGoneOnIsAskedAtOnce) {
  Pair pair;
  pair.b.receive();
  exchange(pair);
  say_last_words(pair, pair.b);
  say_last_words(pair, pair.a);
  pair.run_for(1ms);
  send_unheard(pair);
  pair.network().clear_rules();
  EXPECT_LE(leave(pair, pair.b), 2 * pair.rtt());
}

// That is where the peer's process listens; the latest request may have gone elsewhere.
TEST(EngineLeaveWords, GoWhereTheLatestPacketCameFrom) {
  const Qpn other{99};
  Pair pair;
  pair.b.receive();
  exchange(pair);
  pair.a.open(other, {.qkey = kQkey, .receive_depth = 1});
  pair.a.send(pair.b, "from there", {.source = other});
  ASSERT_TRUE(pair.run_until_idle());
  std::uint32_t to = 0;
  pair.network().observe([&](TimePoint, NetworkEvent event, const auto& packet) {
    srd::wire::CommonHeader header;
    if (event == NetworkEvent::sent && packet.from == pair.b.host() &&
        srd::wire::load(packet.bytes, header)) {
      to = header.destination_qpn.value();
    }
  });
  take_leave(pair, pair.b, srd::Leave::begin);
  EXPECT_EQ(to, other.value());
}

// A third process was killed, so the last rounds go on, and so does a long message.
TEST(EngineLeaveWords, AreFewThoughALongMessageGoesOn) {
  Lab lab(3);
  Node& a = lab[0];
  a.receive();
  lab[2].send(a, "on");
  ASSERT_TRUE(lab.run_until([&] { return !a.inbox().empty(); }));
  lab.crash(lab[2]);
  a.write_phantom(lab[1], std::uint64_t{1} << 30,
                  {.key = lab[1].phantom_key(), .address = Node::kPhantomAddress});
  lab.run_for(1ms);
  const Words said(lab.network(), a);
  EXPECT_GE(say_last_words(lab, a), 100ms);
  EXPECT_LE(said.count(), 10);
}

}  // namespace
}  // namespace weft::testing
