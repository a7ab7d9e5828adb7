// Owns the life of connections: what both ends hear, in which order, and what is sent again.
//
// Host 1 is the active side, host 0 listens. Kinds of messages are the numbers that Linux gives
// them: 0x10 REQ, 0x11 MRA, 0x12 REJ, 0x13 REP, 0x14 RTU, 0x15 DREQ, 0x16 DREP. Times are Linux's
// as well, which programs know: 4.096 us x 2^n.
#include <gmock/gmock.h>

#include "tests/unit/emu/roce/cm/world.hpp"

namespace weft::roce::cm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

// Of both sides, in the order in which they left.
std::vector<std::uint16_t> kinds_sent(const World& world) {
  std::vector<std::uint16_t> kinds;
  for (const auto& message : world.sent) {
    kinds.push_back(static_cast<std::uint16_t>(message.kind));
  }
  return kinds;
}

// Loses the first message of a kind.
struct LoseFirst {
  wire::CmKind kind;
  bool done = false;
  Fate operator()(const wire::CmMessage& message) {
    Fate fate;
    fate.lost = message.kind == kind && !done;
    done = done || fate.lost;
    return fate;
  }
};

TEST(Connect, BothEndsHearWhatLinuxTells) {
  World world(2);
  const Handle listener = world.listener(0);
  const Handle active = world.routed(1, 0);
  ConnectParameters parameters = parameters_of(0x12);
  parameters.responder_resources = 3;
  parameters.initiator_depth = 5;
  parameters.data.bytes[0] = std::byte{42};
  parameters.data.size = 1;
  ASSERT_EQ(world.managers[1]->connect(world.now, active, parameters), 0);

  const Event request = world.next(0);
  EXPECT_EQ(request.kind, EventKind::connect_request);
  EXPECT_EQ(request.id, listener);
  EXPECT_EQ(request.parameters.qpn, 0x12U);
  EXPECT_EQ(request.parameters.responder_resources, 5);  // seen from here
  EXPECT_EQ(request.parameters.initiator_depth, 3);
  // A program gets the whole field of the message, whatever part of it was used: 56 bytes of a
  // request, 196 of a reply, 148 of a rejection.
  EXPECT_EQ(request.parameters.data.size, 56);
  EXPECT_EQ(request.parameters.data.bytes[0], std::byte{42});
  const Connection& passive = world.managers[0]->look(request.connection);
  EXPECT_EQ(passive.binding.address.ip, address_of(0));
  EXPECT_EQ(passive.binding.address.port, kTestPort);
  EXPECT_EQ(passive.destination.ip, address_of(1));
  EXPECT_EQ(passive.destination.port, world.managers[1]->look(active).binding.address.port);

  QpSettings settings;
  ASSERT_EQ(world.managers[0]->qp_settings(request.connection, kQpRtr, settings), 0);
  // The mask of ibv_modify_qp() that Linux's connection manager asks for.
  EXPECT_EQ(settings.mask, 0x129181U);
  EXPECT_EQ(settings.max_destination_reads, 5);
  const ConnectParameters accepted = parameters_of(0x13);
  ASSERT_EQ(world.managers[0]->accept(world.now, request.connection, &accepted), 0);
  const Event response = world.next(1);
  EXPECT_EQ(response.kind, EventKind::connect_response);
  EXPECT_EQ(response.parameters.qpn, 0x13U);
  EXPECT_EQ(response.parameters.data.size, 196);
  ASSERT_EQ(world.managers[1]->accept(world.now, active, nullptr), 0);
  EXPECT_EQ(world.next(0).kind, EventKind::established);
  EXPECT_TRUE(world.heard[1].empty());  // the library tells the active side
  world.run();
  EXPECT_THAT(kinds_sent(world), ElementsAre(0x10, 0x13, 0x14));
}

// What rdma_cm hands to ibv_modify_qp() at both ends, which must fit together.
TEST(Connect, QueuePairsExpectEachOthersNumbers) {
  World world(2);
  const Connected both = connect(world, world.listener(0));
  QpSettings near;
  QpSettings far;
  ASSERT_EQ(world.managers[1]->qp_settings(both.active, kQpRtr, near), 0);
  ASSERT_EQ(world.managers[0]->qp_settings(both.passive, kQpRts, far), 0);
  EXPECT_EQ(near.rq_psn, far.sq_psn);
  EXPECT_EQ(near.destination_qpn, 0x12U);
  EXPECT_EQ(near.path.destination, address_of(0));
  EXPECT_EQ(near.path_mtu, 5U);
  ASSERT_EQ(world.managers[1]->qp_settings(both.active, kQpRts, near), 0);
  ASSERT_EQ(world.managers[0]->qp_settings(both.passive, kQpRtr, far), 0);
  EXPECT_EQ(near.sq_psn, far.rq_psn);
  EXPECT_EQ(far.path.destination, address_of(1));
  EXPECT_EQ(near.mask, 0x12E01U);
  EXPECT_EQ(near.timeout, 19);
  EXPECT_EQ(near.retry_count, 7);
  EXPECT_EQ(near.rnr_retry, 7);
  EXPECT_EQ(near.max_reads, 1);
  ASSERT_EQ(world.managers[1]->qp_settings(both.active, kQpInit, near), 0);
  EXPECT_EQ(near.access, 0xEU);
  EXPECT_EQ(near.mask, 0x39U);
  EXPECT_EQ(world.managers[1]->qp_settings(both.active, 4, near), EINVAL);
}

// A connection takes three messages; the loss of any one is made good by whoever waits for its
// answer.
TEST(Connect, EachMessageMayBeLost) {
  for (const auto kind : {wire::CmKind::request, wire::CmKind::reply, wire::CmKind::ready_to_use}) {
    SCOPED_TRACE(static_cast<unsigned>(kind));
    World world(2);
    world.fate = LoseFirst{kind};
    const Handle listener = world.listener(0);
    const Handle active = world.routed(1, 0);
    ASSERT_EQ(world.managers[1]->connect(world.now, active, parameters_of(1)), 0);
    world.run_for(seconds{10});
    const Event request = world.next(0);
    EXPECT_EQ(request.id, listener);
    const ConnectParameters parameters = parameters_of(2);
    ASSERT_EQ(world.managers[0]->accept(world.now, request.connection, &parameters), 0);
    world.run_for(seconds{10});
    EXPECT_EQ(world.next(1).kind, EventKind::connect_response);
    ASSERT_EQ(world.managers[1]->accept(world.now, active, nullptr), 0);
    world.run_for(seconds{80});  // the reply has been acknowledged, so that it is not sent soon
    EXPECT_EQ(world.next(0).kind, EventKind::established);
    world.run();
    EXPECT_TRUE(world.heard[0].empty());
    EXPECT_TRUE(world.heard[1].empty());
  }
}

// 0x10 is a request, 0x11 an MRA: the program has not answered yet, so the other side is told to
// wait longer before it asks again.
TEST(Connect, ARequestThatComesTwiceIsHeardOnceAndAcknowledged) {
  World world(2);
  (void)world.listener(0);
  const Handle active = world.routed(1, 0);
  ASSERT_EQ(world.managers[1]->connect(world.now, active, parameters_of(1)), 0);
  world.run_for(seconds{7});  // it has been sent again
  EXPECT_THAT(kinds_sent(world), ElementsAre(0x10, 0x10, 0x11));
  EXPECT_EQ(world.sent[2].service_timeout, 24);
  EXPECT_EQ(world.heard[0].size(), 1U);
  world.run_for(seconds{60});  // and now it is waited for
  EXPECT_EQ(world.sent.size(), 3U);
  world.run_for(seconds{10});
  EXPECT_GT(world.sent.size(), 3U);
}

// 0x12 is a rejection. The request is repeated for a quarter of a second all the same, because a
// listener may come a moment later (the next test).
TEST(Connect, NobodyListens) {
  World world(2);
  const Handle active = world.routed(1, 0);
  ASSERT_EQ(world.managers[1]->connect(world.now, active, parameters_of(1)), 0);
  world.run_for(milliseconds{250});
  EXPECT_TRUE(world.heard[1].empty());
  world.run_for(milliseconds{40});
  EXPECT_THAT(kinds_sent(world), ElementsAre(0x10, 0x12, 0x10, 0x12, 0x10, 0x12, 0x10, 0x12, 0x10,
                                             0x12, 0x10, 0x12, 0x10, 0x12, 0x10, 0x12, 0x10, 0x12));
  const Event event = world.next(1);
  EXPECT_EQ(event.kind, EventKind::rejected);
  // Invalid service ID, of the specification's table of reasons.
  EXPECT_EQ(event.status, 8);
}

// Programs that have told each other the port over another connection: the one that connects may
// be faster.
TEST(Connect, AListenerMayComeAMomentLater) {
  World world(2);
  const Handle active = world.routed(1, 0);
  ASSERT_EQ(world.managers[1]->connect(world.now, active, parameters_of(1)), 0);
  world.run_for(milliseconds{20});
  (void)world.listener(0);
  world.run_for(milliseconds{20});
  EXPECT_EQ(world.next(0).kind, EventKind::connect_request);
  EXPECT_TRUE(world.heard[1].empty());
}

// 16 requests, 6.144 s apart, as Linux has them; then the program hears that the peer is
// unreachable.
TEST(Connect, NobodyAnswers) {
  World world(2);
  world.fate = [](const wire::CmMessage&) { return Fate{.lost = true}; };
  const Handle active = world.routed(1, 0);
  ASSERT_EQ(world.managers[1]->connect(world.now, active, parameters_of(1)), 0);
  world.run();
  EXPECT_EQ(world.sent.size(), 16U);
  EXPECT_EQ(world.now, TimePoint{} + 16 * milliseconds{2 * 1024 + 4096});
  const Event event = world.next(1);
  EXPECT_EQ(event.kind, EventKind::unreachable);
  EXPECT_EQ(event.status, -ETIMEDOUT);
}

TEST(Connect, TheProgramRejects) {
  World world(2);
  (void)world.listener(0);
  const Handle active = world.routed(1, 0);
  ASSERT_EQ(world.managers[1]->connect(world.now, active, parameters_of(1)), 0);
  const Event request = world.next(0);
  PrivateData data;
  data.bytes[0] = std::byte{7};
  data.size = 1;
  ASSERT_EQ(world.managers[0]->reject(world.now, request.connection, Reason::consumer, data), 0);
  const Event event = world.next(1);
  EXPECT_EQ(event.kind, EventKind::rejected);
  // Consumer reject.
  EXPECT_EQ(event.status, 28);
  EXPECT_EQ(event.parameters.data.size, 148);
  EXPECT_EQ(event.parameters.data.bytes[0], std::byte{7});
  EXPECT_EQ(world.managers[0]->reject(world.now, request.connection, Reason::consumer, data),
            EINVAL);
}

// Asks a listener, which refuses and forgets. The one that asked hears it once, and the listener
// nothing more.
void expect_one_rejection(World& world, std::chrono::seconds wait) {
  (void)world.listener(0);
  const Handle active = world.routed(1, 0);
  ASSERT_EQ(world.managers[1]->connect(world.now, active, parameters_of(1)), 0);
  const Event request = world.next(0);
  PrivateData data;
  data.bytes[0] = std::byte{7};
  data.size = 1;
  ASSERT_EQ(world.managers[0]->reject(world.now, request.connection, Reason::consumer, data), 0);
  world.managers[0]->destroy(world.now, request.connection);
  world.run_for(wait);
  EXPECT_TRUE(world.heard[0].empty());
  const Event rejected = world.next(1);
  EXPECT_EQ(rejected.status, 28);
  EXPECT_EQ(rejected.parameters.data.bytes[0], std::byte{7});
}

// When the request comes again, by a manager that has forgotten the connection.
TEST(Connect, ALostRejectionIsSaidAgain) {
  World world(2);
  world.fate = LoseFirst{wire::CmKind::reject};
  expect_one_rejection(world, seconds{7});
}

TEST(Connect, ARequestThatWasRejectedIsNeverHeardAgain) {
  World world(2);
  world.fate = [&](const wire::CmMessage& message) {
    return Fate{.lost = message.kind == wire::CmKind::reject && world.now < TimePoint{seconds{60}}};
  };
  expect_one_rejection(world, seconds{70});
}

// Host 0 gets the request of this run once more, with these changes.
template <class Change>
void ask_again(World& world, std::size_t from, const Change& change) {
  wire::CmMessage copy = world.sent.at(0);
  ASSERT_EQ(copy.kind, wire::CmKind::request);
  change(copy);
  std::array<std::byte, wire::kMadSize> mad;
  wire::write_cm(copy, mad);
  world.managers[0]->on_mad(world.now, address_of(from), address_of(0), mad);
  world.settle();
}

// What a program says when it rejects is for the peer that it has rejected: not for who knows the
// peer's numbers, and asks from an address of its own.
TEST(Connect, ARejectionIsSaidAgainToItsPeerOnly) {
  World world(3);
  expect_one_rejection(world, seconds{1});
  ask_again(world, 2, [](wire::CmMessage& copy) { copy.local_gid = address_of(2); });
  EXPECT_EQ(world.next(0).kind, EventKind::connect_request);
}

// A peer that starts anew may come to numbers that it had before: then the last end counts.
TEST(Connect, TheLastRejectionOfANumberIsSaidAgain) {
  World world(2);
  expect_one_rejection(world, seconds{1});
  const auto change = [](wire::CmMessage& copy) { ++copy.starting_psn; };
  ask_again(world, 1, change);
  PrivateData data;
  data.bytes[0] = std::byte{8};
  data.size = 1;
  ASSERT_EQ(world.managers[0]->reject(world.now, world.next(0).connection, Reason::consumer, data),
            0);
  ask_again(world, 1, change);
  EXPECT_TRUE(world.heard[0].empty());
  EXPECT_EQ(world.sent.back().kind, wire::CmKind::reject);
  EXPECT_EQ(world.sent.back().private_data.at(0), std::byte{8});
}

// The passive side leaves when the active one counts on the connection, and cannot know that yet.
void expect_that_leaving_is_heard(World& world, const decltype(World::fate)& fate) {
  (void)world.listener(0);
  const Handle active = world.routed(1, 0);
  ASSERT_EQ(world.managers[1]->connect(world.now, active, parameters_of(1)), 0);
  const Event request = world.next(0);
  const ConnectParameters parameters = parameters_of(2);
  ASSERT_EQ(world.managers[0]->accept(world.now, request.connection, &parameters), 0);
  EXPECT_EQ(world.next(1).kind, EventKind::connect_response);
  ASSERT_EQ(world.managers[1]->accept(world.now, active, nullptr), 0);
  world.fate = fate;
  world.managers[0]->destroy(world.now, request.connection);
  EXPECT_EQ(world.next(1).kind, EventKind::rejected);
  world.run();
  EXPECT_TRUE(world.heard[1].empty());
}

// Its last message must not be lost between the two states.
TEST(Connect, APeerThatLeavesBeforeItIsReadyIsHeard) {
  World world(2);
  expect_that_leaving_is_heard(world, world.fate);
}

// Nor may the network lose it: nobody would say it again.
TEST(Connect, WhatAPeerSaysThatLeavesBeforeItIsReadyMayBeLost) {
  World world(2);
  expect_that_leaving_is_heard(world, LoseFirst{wire::CmKind::reject});
}

// The second request is dropped, and heard when it is repeated.
TEST(Connect, ABacklogThatIsFullAnswersLater) {
  World world(2);
  const Handle listener = world.listener(0, 1);
  for (std::uint32_t qpn : {1U, 2U}) {
    const Handle active = world.routed(1, 0);
    ASSERT_EQ(world.managers[1]->connect(world.now, active, parameters_of(qpn)), 0);
  }
  world.run_for(seconds{1});
  ASSERT_EQ(world.heard[0].size(), 1U);
  EXPECT_EQ(world.managers[0]->counters().no_room, 1U);
  world.managers[0]->took_request(listener);
  world.run_for(seconds{7});
  EXPECT_EQ(world.heard[0].size(), 2U);
}

// Nothing is sent: messages turn round within the manager.
TEST(Connect, BothEndsMayBeInOneProcess) {
  World world(1);
  const Handle listener = world.listener(0);
  Manager& manager = *world.managers[0];
  const Handle active = world.routed(0, 0);
  ASSERT_EQ(manager.connect(world.now, active, parameters_of(1)), 0);
  const Event request = world.next(0);
  ASSERT_EQ(request.id, listener);
  const ConnectParameters parameters = parameters_of(2);
  ASSERT_EQ(manager.accept(world.now, request.connection, &parameters), 0);
  EXPECT_EQ(world.next(0).kind, EventKind::connect_response);
  ASSERT_EQ(manager.accept(world.now, active, nullptr), 0);
  EXPECT_EQ(world.next(0).kind, EventKind::established);
  ASSERT_EQ(manager.disconnect(world.now, active), 0);
  EXPECT_EQ(world.next(0).id, request.connection);
  ASSERT_EQ(manager.disconnect(world.now, request.connection), 0);
  EXPECT_EQ(world.next(0).kind, EventKind::disconnected);
  EXPECT_TRUE(world.sent.empty());
}

// Only then, because the other program may still have completions to take. Both ids rest for a
// while before they may be used anew.
TEST(Disconnect, IsAnsweredWhenTheOtherProgramDisconnects) {
  World world(2);
  const Connected both = connect(world, world.listener(0));
  world.sent.clear();
  ASSERT_EQ(world.managers[1]->disconnect(world.now, both.active), 0);
  EXPECT_EQ(world.next(0).kind, EventKind::disconnected);
  EXPECT_TRUE(world.heard[1].empty());
  ASSERT_EQ(world.managers[0]->disconnect(world.now, both.passive), 0);
  const Event event = world.next(1);
  EXPECT_EQ(event.kind, EventKind::disconnected);
  EXPECT_EQ(event.status, 0);
  world.run();
  EXPECT_EQ(world.next(1).kind, EventKind::timewait_exit);
  EXPECT_EQ(world.next(0).kind, EventKind::timewait_exit);
  EXPECT_THAT(kinds_sent(world), ElementsAre(0x15, 0x16));
}

TEST(Disconnect, LostMessagesAreSentAgain) {
  for (const auto kind : {wire::CmKind::disconnect_request, wire::CmKind::disconnect_reply}) {
    World world(2);
    const Connected both = connect(world, world.listener(0));
    world.fate = LoseFirst{kind};
    ASSERT_EQ(world.managers[1]->disconnect(world.now, both.active), 0);
    world.run_for(seconds{7});
    EXPECT_EQ(world.next(0).kind, EventKind::disconnected);
    ASSERT_EQ(world.managers[0]->disconnect(world.now, both.passive), 0);
    world.managers[0]->destroy(world.now, both.passive);  // a stranger answers as well
    world.run_for(seconds{14});
    EXPECT_EQ(world.next(1).kind, EventKind::disconnected);
  }
}

// Both requests cross on their way. Neither end waits for an answer that never comes.
TEST(Disconnect, BothAtOnce) {
  World world(2);
  const Connected both = connect(world, world.listener(0));
  ASSERT_EQ(world.managers[1]->disconnect(world.now, both.active), 0);
  ASSERT_EQ(world.managers[0]->disconnect(world.now, both.passive), 0);
  EXPECT_EQ(world.next(0).kind, EventKind::disconnected);
  EXPECT_EQ(world.next(1).kind, EventKind::disconnected);
  world.managers[0]->destroy(world.now, both.passive);
  world.managers[1]->destroy(world.now, both.active);
  world.run();
  EXPECT_TRUE(world.heard[0].empty());
  EXPECT_TRUE(world.heard[1].empty());
}

// Linux does so for programs that end without a word.
TEST(Disconnect, AnIdThatIsDestroyedSaysGoodBye) {
  World world(2);
  const Connected both = connect(world, world.listener(0));
  world.managers[1]->destroy(world.now, both.active);
  EXPECT_EQ(world.next(0).kind, EventKind::disconnected);
}

// rping's client goes as soon as it has said good-bye: nobody would say it again, and its server
// waits for ever (on Linux it does, if that one datagram is lost).
TEST(Disconnect, TheGoodByeOfAnIdThatIsDestroyedMayBeLost) {
  for (const bool disconnects : {true, false}) {
    World world(2);
    const Connected both = connect(world, world.listener(0));
    world.fate = LoseFirst{wire::CmKind::disconnect_request};
    if (disconnects) {
      ASSERT_EQ(world.managers[1]->disconnect(world.now, both.active), 0);
    }
    world.managers[1]->destroy(world.now, both.active);
    EXPECT_EQ(world.next(0).kind, EventKind::disconnected);
  }
}

// A queue pair of one host can have one connection only: another request that names it proves that
// the first one's process is gone. Reason 10 is a stale connection.
TEST(Disconnect, APeerThatHasGoneIsNoticedWhenItComesAgain) {
  World world(2);
  const Handle listener = world.listener(0);
  const Connected both = connect(world, listener, 0x20);
  World other(2);  // another life of host 1
  other.listener(0);
  const Handle again = other.routed(1, 0);
  ASSERT_EQ(other.managers[1]->connect(other.now, again, parameters_of(0x20)), 0);
  Outgoing request;
  ASSERT_TRUE(other.managers[1]->next_mad(other.now, request));
  world.sent.clear();
  request.mad[27] ^= std::byte{1};  // its communication id is not the first one's
  world.managers[0]->on_mad(world.now, address_of(1), address_of(0), request.mad);
  world.settle();
  ASSERT_EQ(world.sent.size(), 2U);
  EXPECT_EQ(world.sent[0].reason, 10);
  EXPECT_EQ(world.sent[1].kind, wire::CmKind::disconnect_request);
  EXPECT_EQ(world.managers[0]->look(both.passive).phase, Phase::disconnect_sent);
}

// The program has not taken the event, so nobody else could answer the request.
TEST(Destroy, TakesUnheardRequestsAlong) {
  World world(2);
  const Handle listener = world.listener(0);
  const Handle active = world.routed(1, 0);
  ASSERT_EQ(world.managers[1]->connect(world.now, active, parameters_of(1)), 0);
  Outgoing request;
  ASSERT_TRUE(world.managers[1]->next_mad(world.now, request));
  world.managers[0]->on_mad(world.now, request.from, request.to, request.mad);
  EXPECT_EQ(world.managers[0]->ids(), 2U);
  world.managers[0]->destroy(world.now, listener);
  EXPECT_EQ(world.managers[0]->ids(), 0U);
  EXPECT_TRUE(world.claims[0]->own.empty());
  EXPECT_EQ(world.next(1).status, 28);
  EXPECT_TRUE(world.heard[0].empty());
}

// Reason 4: the requester has given up.
TEST(Destroy, OfARequestThatNobodyAnsweredTellsThePeer) {
  World world(2);
  (void)world.listener(0);
  const Handle active = world.routed(1, 0);
  ASSERT_EQ(world.managers[1]->connect(world.now, active, parameters_of(1)), 0);
  const Event request = world.next(0);
  world.managers[1]->destroy(world.now, active);
  const Event event = world.next(0);
  EXPECT_EQ(event.id, request.connection);
  EXPECT_EQ(event.kind, EventKind::rejected);
  EXPECT_EQ(event.status, 4);
}

// A process asks itself, and lets go before it has answered.
class DestroyWithinOneProcess : public testing::Test {
 protected:
  DestroyWithinOneProcess() {
    (void)world.listener(0);
    EXPECT_EQ(manager.connect(world.now, active, parameters_of(1)), 0);
  }
  void expect_nothing_to_accept(const Event& request) {
    const ConnectParameters parameters = parameters_of(2);
    EXPECT_EQ(manager.accept(world.now, request.connection, &parameters), EINVAL);
    world.run();
    EXPECT_TRUE(world.sent.empty());
    EXPECT_TRUE(world.heard[0].empty());
  }

  World world{1};
  Manager& manager = *world.managers[0];
  const Handle active = world.routed(0, 0);
};

TEST_F(DestroyWithinOneProcess, TellsTheOtherEnd) {
  const Event request = world.next(0);
  manager.destroy(world.now, active);
  const Event event = world.next(0);
  EXPECT_EQ(event.id, request.connection);
  EXPECT_EQ(event.kind, EventKind::rejected);
  EXPECT_EQ(event.status, 4);
  expect_nothing_to_accept(request);
}

// Both messages still wait to be fetched.
TEST_F(DestroyWithinOneProcess, TellsTheOtherEndAlsoOfARequestThatHasNotLeft) {
  manager.destroy(world.now, active);
  const Event request = world.next(0);
  ASSERT_EQ(request.kind, EventKind::connect_request);
  EXPECT_EQ(world.next(0).kind, EventKind::rejected);
  expect_nothing_to_accept(request);
}

// The third message may be late or lost, while the first data have arrived. The program may say so,
// which counts as that message.
TEST(Establish, DataMayComeBeforeTheMessage) {
  World world(2);
  (void)world.listener(0);
  const Handle active = world.routed(1, 0);
  ASSERT_EQ(world.managers[1]->connect(world.now, active, parameters_of(1)), 0);
  const Event request = world.next(0);
  EXPECT_EQ(world.managers[0]->establish(request.connection), EINVAL);
  const ConnectParameters parameters = parameters_of(2);
  ASSERT_EQ(world.managers[0]->accept(world.now, request.connection, &parameters), 0);
  ASSERT_EQ(world.managers[0]->establish(request.connection), 0);
  EXPECT_EQ(world.next(0).kind, EventKind::established);
  EXPECT_EQ(world.managers[0]->establish(request.connection), EISCONN);
}

// For datagrams there is no connection: one question, and the answer is a queue pair and its key.
TEST(Sidr, TellsTheQueuePairOfAService) {
  World world(2);
  (void)world.listener(0, 8, PortSpace::udp);
  const Handle active = world.routed(1, 0, PortSpace::udp);
  world.fate = LoseFirst{wire::CmKind::sidr_reply};
  ASSERT_EQ(world.managers[1]->connect(world.now, active, parameters_of(1)), 0);
  const Event request = world.next(0);
  EXPECT_TRUE(request.datagram);
  EXPECT_EQ(request.parameters.data.size, 180);
  const ConnectParameters parameters = parameters_of(0x14);
  ASSERT_EQ(world.managers[0]->accept(world.now, request.connection, &parameters), 0);
  world.run_for(seconds{5});
  EXPECT_TRUE(world.heard[0].empty());  // asked twice, heard once
  const Event event = world.next(1);
  EXPECT_EQ(event.kind, EventKind::established);
  EXPECT_EQ(event.parameters.qpn, 0x14U);
  EXPECT_EQ(event.parameters.qkey, kUdpQkey);
  EXPECT_EQ(event.parameters.data.size, 136);
  EXPECT_EQ(event.path.destination, address_of(0));
  QpSettings settings;
  ASSERT_EQ(world.managers[1]->qp_settings(active, kQpInit, settings), 0);
  EXPECT_EQ(settings.mask, 0x71U);
  EXPECT_EQ(settings.qkey, kUdpQkey);
}

TEST(Sidr, IsRefused) {
  World world(2);
  const Handle first = world.routed(1, 0, PortSpace::udp);
  ASSERT_EQ(world.managers[1]->connect(world.now, first, parameters_of(1)), 0);
  Event event = world.next(1);
  EXPECT_EQ(event.kind, EventKind::unreachable);
  // SIDR's own table: 1 is no such service, 2 a refusal.
  EXPECT_EQ(event.status, 1);
  (void)world.listener(0, 8, PortSpace::udp);
  const Handle second = world.routed(1, 0, PortSpace::udp);
  ASSERT_EQ(world.managers[1]->connect(world.now, second, parameters_of(1)), 0);
  ASSERT_EQ(world.managers[0]->reject(world.now, world.next(0).connection, Reason::consumer, {}),
            0);
  event = world.next(1);
  EXPECT_EQ(event.kind, EventKind::unreachable);
  EXPECT_EQ(event.status, 2);
}

}  // namespace
}  // namespace weft::roce::cm
