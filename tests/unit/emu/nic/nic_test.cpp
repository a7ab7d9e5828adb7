// Tests of the NIC's objects and of work between two NICs.
//
// Two NICs on a wire in virtual time (two_nics.hpp), without a kernel or a device around them: what
// is tested is what a NIC does with work requests. `only()` demands that exactly one completion has
// come.
#include <set>

#include "tests/unit/emu/nic/two_nics.hpp"

namespace weft::nic {
namespace {

TEST_F(TwoNics, SendCarriesBytesImmediateAndSource) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  ASSERT_TRUE(right.receive(to, 77, 100));
  SendWork work = send(to, "hello, datagram", 5);
  work.immediate = 0xABCD1234;
  ASSERT_TRUE(left.nic.post_send(from, work));
  run();
  const WorkCompletion sent = only(left.poll());
  EXPECT_EQ(sent.wr_id, 5U);
  EXPECT_EQ(sent.status, WorkStatus::ok);
  EXPECT_EQ(sent.operation, Operation::send);
  const WorkCompletion got = only(right.poll());
  EXPECT_EQ(got.wr_id, 77U);
  EXPECT_EQ(got.status, WorkStatus::ok);
  EXPECT_EQ(got.length, 15U);
  EXPECT_TRUE(got.has_immediate);
  EXPECT_EQ(got.immediate, 0xABCD1234U);
  EXPECT_EQ(got.source_qpn, from.number());
  EXPECT_EQ(got.source_ah, kUnknownAh);  // the receiver's domain knows no handle of the sender
  EXPECT_EQ(got.source, left.address);
  EXPECT_EQ(right.text(100, 15), "hello, datagram");
}

// A program recognises a sender by the number of its own address handle. A handle of another
// domain, made first, must not be told.
TEST_F(TwoNics, ReceiverWithHandleOfItsOwnDomainIsToldItsNumber) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  const std::uint32_t other_pd = *right.nic.allocate_pd();
  ASSERT_TRUE(right.nic.create_ah(other_pd, left.address));
  const std::uint16_t own = *right.nic.create_ah(right.pd, left.address);
  ASSERT_TRUE(right.receive(to, 1));
  ASSERT_TRUE(left.nic.post_send(from, send(to, "x", 1)));
  run();
  EXPECT_EQ(only(right.poll()).source_ah, own);
}

// Inline means that the caller may reuse its bytes at once.
TEST_F(TwoNics, InlineBytesAreCopiedWhenPosted) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  ASSERT_TRUE(right.receive(to, 1));
  ASSERT_TRUE(left.nic.post_send(from, send(to, "first", 1)));
  (void)send(to, "XXXXX", 0);  // overwrites the caller's bytes
  run();
  EXPECT_EQ(right.text(0, 5), "first");
}

// More bytes than a packet holds. The peer's program sees neither of the two: it gets no
// completion.
TEST_F(TwoNics, WriteAndReadPlaceBytes) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  left.fill(0, std::string(20000, 'w'));
  right.fill(30000, "what the reader wants");
  SendWork work;
  work.ah = ah;
  work.destination = to.number();
  work.remote_key = right.key.value();
  work.operation = Operation::rdma_write;
  work.sges[0] = left.sge(0, 20000);
  work.sge_count = 1;
  work.remote_address = Side::kIova + 8;
  ASSERT_TRUE(left.nic.post_send(from, work));
  run();
  EXPECT_EQ(only(left.poll()).operation, Operation::rdma_write);
  EXPECT_EQ(right.text(8, 20000), std::string(20000, 'w'));
  EXPECT_TRUE(right.poll().empty());
  work.operation = Operation::rdma_read;
  work.sges[0] = left.sge(40000, 21);
  work.remote_address = Side::kIova + 30000;
  ASSERT_TRUE(left.nic.post_send(from, work));
  run();
  const WorkCompletion read = only(left.poll());
  EXPECT_EQ(read.status, WorkStatus::ok);
  EXPECT_EQ(read.operation, Operation::rdma_read);
  EXPECT_EQ(left.text(40000, 21), "what the reader wants");
}

// A NIC whose owner demands an address handle for whoever reaches its memory, as the profiles of
// EFA say.
class StrictNics : public TwoNics {
 protected:
  StrictNics()
      : TwoNics([] {
          NicConfig config;
          config.rdma_needs_ah = true;
          return config;
        }()) {}
};

// Messages come from anybody; memory is for those that the owner has an address handle for.
TEST_F(StrictNics, RemoteAccessNeedsAnAddressHandleAtTheTarget) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  left.fill(0, "written");
  SendWork work;
  work.ah = ah;
  work.destination = to.number();
  work.remote_key = right.key.value();
  work.remote_address = Side::kIova;
  work.sges[0] = left.sge(0, 7);
  work.sge_count = 1;
  const auto status_of = [&](Operation operation) {
    work.operation = operation;
    EXPECT_TRUE(left.nic.post_send(from, work));
    run();
    return only(left.poll()).status;
  };
  const std::uint32_t other_pd = *right.nic.allocate_pd();
  // In another domain: that handle gives no right in this one.
  const std::uint16_t elsewhere = *right.nic.create_ah(other_pd, left.address);
  EXPECT_EQ(status_of(Operation::rdma_write), WorkStatus::remote_unknown_peer);
  EXPECT_EQ(status_of(Operation::rdma_read), WorkStatus::remote_unknown_peer);
  EXPECT_NE(right.text(0, 7), "written");
  ASSERT_TRUE(right.receive(to, 1));
  ASSERT_TRUE(left.nic.post_send(from, send(to, "hello", 2)));
  run();
  EXPECT_EQ(only(left.poll()).status, WorkStatus::ok);
  EXPECT_EQ(only(right.poll()).status, WorkStatus::ok);

  const std::uint16_t back = *right.nic.create_ah(right.pd, left.address);
  EXPECT_EQ(status_of(Operation::rdma_write), WorkStatus::ok);
  EXPECT_EQ(status_of(Operation::rdma_read), WorkStatus::ok);
  ASSERT_TRUE(right.nic.destroy_ah(right.pd, back));
  EXPECT_EQ(status_of(Operation::rdma_read), WorkStatus::remote_unknown_peer);
  EXPECT_TRUE(right.nic.destroy_ah(other_pd, elsewhere));
}

// A queue pair that was made for unsolicited immediate data is told of it without a posted receive,
// so there is no request number to tell.
TEST_F(TwoNics, WriteWithImmediateConsumesAReceiveUnlessUnsolicited) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  DatagramQp& eager =
      **right.nic.create_qp({.pd = right.pd, .receive_depth = 16, .unsolicited_immediate = true});
  right.to_rts(eager);
  ASSERT_TRUE(right.receive(to, 9));
  SendWork work;
  work.ah = ah;
  work.operation = Operation::rdma_write;
  work.sges[0] = left.sge(0, 100);
  work.sge_count = 1;
  work.remote_address = Side::kIova;
  work.remote_key = right.key.value();
  work.immediate = 42;
  work.destination = to.number();
  work.qkey = 7;
  ASSERT_TRUE(left.nic.post_send(from, work));
  run();
  WorkCompletion got = only(right.poll());
  EXPECT_EQ(got.operation, Operation::receive_write_immediate);
  EXPECT_EQ(got.wr_id, 9U);
  EXPECT_EQ(got.immediate, 42U);
  EXPECT_FALSE(got.unsolicited);
  work.destination = eager.number();
  ASSERT_TRUE(left.nic.post_send(from, work));
  run();
  got = only(right.poll());
  EXPECT_TRUE(got.unsolicited);
  EXPECT_EQ(got.wr_id, 0U);
  EXPECT_EQ(got.qp, &eager);
}

// The first 40 bytes of a receive are kept for a GRH, which is zero here. The second datagram finds
// no receive: its sender is told of success all the same, as UD promises no more.
TEST_F(TwoNics, DatagramsLeaveRoomForTheHeaderAndNobodyIsToldOfLoss) {
  DatagramQp& from = left.ready_qp(QpType::ud);
  DatagramQp& to = right.ready_qp(QpType::ud);
  right.fill(0, std::string(64, '#'));
  ASSERT_TRUE(right.receive(to, 3, 0, 64));
  ASSERT_TRUE(left.nic.post_send(from, send(to, "payload", 1)));
  run();
  EXPECT_EQ(only(left.poll()).status, WorkStatus::ok);
  EXPECT_EQ(only(right.poll()).length, kGrhSize + 7);
  EXPECT_EQ(right.text(0, kGrhSize), std::string(kGrhSize, '\0'));
  EXPECT_EQ(right.text(kGrhSize, 7), "payload");
  ASSERT_TRUE(left.nic.post_send(from, send(to, "nobody listens", 2)));
  run(std::chrono::milliseconds{30});
  EXPECT_EQ(only(left.poll()).status, WorkStatus::ok);
  EXPECT_TRUE(right.poll().empty());
}

// --- What is wrong with a request becomes its completion, and disturbs no other one.

struct WrongCase {
  const char* name;
  WorkStatus expected;
  void (*spoil)(SendWork& work, Side& left, Side& right);
};

// Each row spoils one thing of a request that is good. Afterwards another request shows that the
// queue pair is still in order.
class WrongRequest : public TwoNics, public ::testing::WithParamInterface<WrongCase> {};

TEST_P(WrongRequest, CompletesWithItsStatus) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  ASSERT_TRUE(right.receive(to, 1, 0, 100));
  SendWork work;
  work.wr_id = 11;
  work.ah = ah;
  work.destination = to.number();
  work.qkey = 7;
  work.sges[0] = left.sge(0, 100);
  work.sge_count = 1;
  work.remote_address = Side::kIova;
  work.remote_key = right.key.value();
  GetParam().spoil(work, left, right);
  ASSERT_TRUE(left.nic.post_send(from, work));
  run();
  const WorkCompletion done = only(left.poll());
  EXPECT_EQ(done.wr_id, 11U);
  EXPECT_EQ(done.status, GetParam().expected);
  // The queue pair goes on.
  ASSERT_TRUE(right.receive(to, 2, 0, 100));
  ASSERT_TRUE(left.nic.post_send(from, send(to, "still alive", 12)));
  run();
  EXPECT_EQ(only(left.poll()).status, WorkStatus::ok);
}

// A key over the same bytes, with other rights or of another domain.
std::uint32_t foreign_key(Side& side, srd::Access access, bool other_pd) {
  const std::uint32_t pd = other_pd ? *side.nic.allocate_pd() : side.pd;
  return side.nic
      .register_memory(srd::Region{.data = side.memory.data(),
                                   .address = Side::kIova,
                                   .length = 4096,
                                   .access = access,
                                   .domain = pd})
      ->value();
}

constexpr auto kAll =
    srd::Access::local_write | srd::Access::remote_read | srd::Access::remote_write;

INSTANTIATE_TEST_SUITE_P(
    All, WrongRequest,
    ::testing::Values(WrongCase{"AhThatIsNot", WorkStatus::bad_ah,
                                [](SendWork& w, Side&, Side&) { w.ah = 999; }},
                      WrongCase{"AhUnknownNumber", WorkStatus::bad_ah,
                                [](SendWork& w, Side&, Side&) { w.ah = kUnknownAh; }},
                      WrongCase{"AhOfAnotherDomain", WorkStatus::bad_ah,
                                [](SendWork& w, Side& l, Side& r) {
                                  w.ah = *l.nic.create_ah(*l.nic.allocate_pd(), r.address);
                                }},
                      WrongCase{"LocalKeyThatIsNot", WorkStatus::bad_local_key,
                                [](SendWork& w, Side&, Side&) { w.sges[0].key ^= 0x10; }},
                      WrongCase{"LocalKeyOfAnotherDomain", WorkStatus::bad_local_key,
                                [](SendWork& w, Side& l, Side&) {
                                  w.sges[0].key = foreign_key(l, kAll, true);
                                }},
                      WrongCase{"LocalBeforeRegion", WorkStatus::bad_local_key,
                                [](SendWork& w, Side&, Side&) { --w.sges[0].address; }},
                      WrongCase{"LocalBeyondRegion", WorkStatus::bad_local_key,
                                [](SendWork& w, Side&, Side&) {
                                  w.sges[0].address = Side::kIova + 64 * 1024 - 99;
                                }},
                      WrongCase{"LocalWrapsAround", WorkStatus::bad_local_key,
                                [](SendWork& w, Side&, Side&) { w.sges[0].address = ~0ULL - 10; }},
                      WrongCase{"SendTooLong", WorkStatus::local_length,
                                [](SendWork& w, Side&, Side&) { w.sges[0].length = 8192; }},
                      WrongCase{
                          "NoSuchOperation", WorkStatus::unsupported_operation,
                          [](SendWork& w, Side&, Side&) { w.operation = Operation::invalid; }},
                      WrongCase{"ReadWithInlineData", WorkStatus::unsupported_operation,
                                [](SendWork& w, Side&, Side&) {
                                  w.operation = Operation::rdma_read;
                                  w.inline_data = std::span<const std::byte>{};
                                }},
                      WrongCase{"DestinationThatIsNot", WorkStatus::remote_bad_qpn,
                                [](SendWork& w, Side&, Side&) { w.destination += 100; }},
                      WrongCase{"WrongQkey", WorkStatus::remote_bad_qpn,
                                [](SendWork& w, Side&, Side&) { w.qkey = 8; }},
                      WrongCase{"ReceiveTooShort", WorkStatus::remote_length,
                                [](SendWork& w, Side&, Side&) { w.sges[0].length = 101; }},
                      WrongCase{"WriteKeyThatIsNot", WorkStatus::remote_bad_key,
                                [](SendWork& w, Side&, Side&) {
                                  w.operation = Operation::rdma_write;
                                  w.remote_key ^= 0x20;
                                }},
                      WrongCase{"WriteOutOfBounds", WorkStatus::remote_bad_key,
                                [](SendWork& w, Side&, Side&) {
                                  w.operation = Operation::rdma_write;
                                  w.remote_address = Side::kIova + 64 * 1024 - 99;
                                }},
                      WrongCase{"WriteBelowRegion", WorkStatus::remote_bad_key,
                                [](SendWork& w, Side&, Side&) {
                                  w.operation = Operation::rdma_write;
                                  w.remote_address = Side::kIova - 1;
                                }},
                      WrongCase{"WriteWithoutRight", WorkStatus::remote_bad_key,
                                [](SendWork& w, Side&, Side& r) {
                                  w.operation = Operation::rdma_write;
                                  w.remote_key = foreign_key(
                                      r, srd::Access::local_write | srd::Access::remote_read,
                                      false);
                                }},
                      WrongCase{"WriteToAnotherDomain", WorkStatus::remote_bad_key,
                                [](SendWork& w, Side&, Side& r) {
                                  w.operation = Operation::rdma_write;
                                  w.remote_key = foreign_key(r, kAll, true);
                                }},
                      WrongCase{"ReadKeyThatIsNot", WorkStatus::remote_bad_key,
                                [](SendWork& w, Side&, Side&) {
                                  w.operation = Operation::rdma_read;
                                  w.remote_key ^= 0x20;
                                }},
                      WrongCase{"ReadWithoutRight", WorkStatus::remote_bad_key,
                                [](SendWork& w, Side&, Side& r) {
                                  w.operation = Operation::rdma_read;
                                  w.remote_key = foreign_key(
                                      r, srd::Access::local_write | srd::Access::remote_write,
                                      false);
                                }},
                      WrongCase{"ReadIntoReadOnly", WorkStatus::bad_local_key,
                                [](SendWork& w, Side& l, Side&) {
                                  w.operation = Operation::rdma_read;
                                  w.sges[0].key = foreign_key(l, srd::Access::none, false);
                                }}),
    [](const auto& test) { return std::string(test.param.name); });

// --- The life of queue pairs and domains.

// A retry count of 0 means none, 7 (the default here) means for ever.
TEST_F(TwoNics, RnrWithoutRetriesIsReported) {
  DatagramQp& from = left.ready_qp();
  QpAttributes none{.rnr_retry = 0, .sq_psn = 1};
  DatagramQp& strict = **left.nic.create_qp({.pd = left.pd, .receive_depth = 1});
  left.to_rts(strict);
  DatagramQp& to = right.ready_qp();
  QpAttributes reset{};
  ASSERT_TRUE(left.nic.modify_qp(from, kMaskState, reset));
  QpAttributes init{.state = 1, .port = 1, .qkey = 7};
  ASSERT_TRUE(left.nic.modify_qp(from, 0x71, init));
  ASSERT_TRUE(left.nic.modify_qp(from, kMaskState, QpAttributes{.state = 2}));
  none.state = 3;
  ASSERT_TRUE(left.nic.modify_qp(from, kMaskState | kMaskSqPsn | kMaskRnrRetry, none));
  ASSERT_TRUE(left.nic.post_send(from, send(to, "too early", 1)));
  run();
  EXPECT_EQ(only(left.poll()).status, WorkStatus::remote_not_ready);
  // Without a limit it waits until a receive is posted.
  ASSERT_TRUE(left.nic.post_send(strict, send(to, "patient", 2)));
  run();
  EXPECT_TRUE(left.poll().empty());
  ASSERT_TRUE(right.receive(to, 1));
  run(std::chrono::milliseconds{5});
  EXPECT_EQ(only(left.poll()).status, WorkStatus::ok);
  EXPECT_EQ(right.text(0, 7), "patient");
}

// What a program has posted it gets back in ERROR, each with a completion; RESET is the end without
// a word.
TEST_F(TwoNics, ErrorFlushesWhatIsOutstandingAndResetForgetsIt) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  ASSERT_TRUE(left.receive(from, 50));
  ASSERT_TRUE(left.nic.post_send(from, send(to, "never", 51)));  // no receive is posted there
  run();
  ASSERT_TRUE(left.nic.modify_qp(from, kMaskState, QpAttributes{.state = 6}));
  std::vector<WorkCompletion> flushed = left.poll();
  ASSERT_EQ(flushed.size(), 2U);
  for (const WorkCompletion& done : flushed) {
    EXPECT_EQ(done.status, WorkStatus::flushed);
  }
  ASSERT_TRUE(left.nic.post_send(from, send(to, "in error", 52)));
  EXPECT_EQ(only(left.poll()).status, WorkStatus::flushed);
  ASSERT_TRUE(left.nic.modify_qp(from, kMaskState, QpAttributes{.state = 0}));
  left.to_rts(from);
  ASSERT_TRUE(left.receive(from, 53));
  ASSERT_TRUE(left.nic.modify_qp(from, kMaskState, QpAttributes{.state = 0}));
  EXPECT_TRUE(left.poll().empty());
}

// Also what never reached the engine: the next life of the queue pair must not meet it.
TEST_F(TwoNics, ResetForgetsWhatEndedLocally) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& other = left.ready_qp();
  SendWork wrong = send(from, "nowhere", 60);
  wrong.ah = 999;
  ASSERT_TRUE(left.nic.post_send(from, wrong));
  ASSERT_TRUE(left.nic.post_receive(from, {.wr_id = 61, .sges = {Sge{0, 8, 0}}, .sge_count = 1}));
  wrong.wr_id = 62;
  ASSERT_TRUE(left.nic.post_send(other, wrong));
  ASSERT_TRUE(left.nic.modify_qp(from, kMaskState, QpAttributes{.state = 0}));
  EXPECT_EQ(only(left.poll()).wr_id, 62U);
}

// Packets for the old queue pair may still travel, so the next one has another number.
TEST_F(TwoNics, DestroyedQueuePairsCompleteNothingAndTheirNumbersRest) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  const std::uint32_t number = from.number();
  ASSERT_TRUE(left.nic.post_send(from, send(to, "lost", 1)));
  left.nic.destroy_qp(from);
  run();
  EXPECT_TRUE(left.poll().empty());
  EXPECT_NE(left.ready_qp().number(), number);
}

// The same address twice gives the same handle; only the last destruction ends the work that uses
// it.
TEST_F(TwoNics, DestroyedHandleEndsItsWork) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  ASSERT_EQ(*left.nic.create_ah(left.pd, right.address), ah);  // counted twice
  ASSERT_TRUE(left.nic.post_send(from, send(to, "waits for a receive", 1)));
  run();
  ASSERT_TRUE(left.nic.destroy_ah(left.pd, ah));
  EXPECT_TRUE(left.poll().empty());
  ASSERT_TRUE(left.nic.destroy_ah(left.pd, ah));
  EXPECT_EQ(only(left.poll()).status, WorkStatus::flushed);
  EXPECT_EQ(left.nic.destroy_ah(left.pd, ah).error(), EINVAL);
}

// Unreachable: it was never heard. Unresponsive: it was heard, and is silent now.
TEST_F(TwoNics, SilentPeersAreUnreachableOrUnresponsive) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  cut = true;
  ASSERT_TRUE(left.nic.post_send(from, send(to, "anybody?", 1)));
  run(std::chrono::milliseconds{400});
  EXPECT_EQ(only(left.poll()).status, WorkStatus::unreachable);
  cut = false;
  ASSERT_TRUE(right.receive(to, 1));
  ASSERT_TRUE(left.nic.post_send(from, send(to, "hello", 2)));
  run();
  EXPECT_EQ(only(left.poll()).status, WorkStatus::ok);
  cut = true;
  ASSERT_TRUE(left.nic.post_send(from, send(to, "still there?", 3)));
  run(std::chrono::milliseconds{400});
  EXPECT_EQ(only(left.poll()).status, WorkStatus::unresponsive);
}

// By a region and an address handle of the fixture.
TEST_F(TwoNics, DomainsInUseCannotBeFreed) {
  EXPECT_EQ(left.nic.free_pd(left.pd).error(), EBUSY);
  const std::uint32_t pd = *left.nic.allocate_pd();
  EXPECT_TRUE(left.nic.free_pd(pd));
  EXPECT_EQ(left.nic.free_pd(pd).error(), EINVAL);
  EXPECT_EQ(left.nic.create_qp({.pd = pd}).error(), EINVAL);
  EXPECT_EQ(left.nic.create_ah(pd, right.address).error(), EINVAL);
}

// A process has a block of 256.
TEST_F(TwoNics, NumbersRunOutAndComeBack) {
  std::vector<DatagramQp*> all;
  while (auto qp = left.nic.create_qp({.pd = left.pd})) {
    all.push_back(*qp);
  }
  EXPECT_EQ(all.size(), 256U);
  left.nic.destroy_qp(*all[100]);
  EXPECT_EQ(*left.nic.create_qp({.pd = left.pd}), all[100]);
  EXPECT_EQ(left.nic.create_qp({.pd = left.pd}).error(), ENOMEM);
}

class FewQueuePairs : public TwoNics {
 protected:
  FewQueuePairs()
      : TwoNics([] {
          NicConfig config;
          config.max_qp = 100;
          return config;
        }()) {}
};

// Libraries keep them in a table of 128 places, by the low bits of their numbers.
TEST_F(FewQueuePairs, ThereAreNoMoreAndTheirNumbersDifferInTheLibrarysTable) {
  std::vector<DatagramQp*> all;
  for (int round = 0; round < 10; ++round) {
    while (auto qp = left.nic.create_qp({.pd = left.pd})) {
      all.push_back(*qp);
    }
    ASSERT_EQ(all.size(), 100U);
    EXPECT_EQ(left.nic.create_qp({.pd = left.pd}).error(), ENOMEM);
    std::set<std::uint32_t> places;
    for (const DatagramQp* const qp : all) {
      EXPECT_TRUE(places.insert(qp->number() % 128).second) << qp->number();
    }
    for (std::size_t i = 0; i < all.size(); i += 3) {  // some go, new ones come
      left.nic.destroy_qp(*all[i]);
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

// 18 bytes into 4, 5 and 50; the sign behind each piece must stay.
TEST_F(TwoNics, ReceivesScatterToThreePieces) {
  for (const QpType type : {QpType::srd, QpType::ud}) {
    DatagramQp& from = left.ready_qp(type);
    DatagramQp& to = right.ready_qp(type);
    right.fill(0, std::string(400, '#'));
    const std::uint32_t head = type == QpType::ud ? kGrhSize : 0;
    ASSERT_TRUE(right.nic.post_receive(
        to, {.wr_id = 1,
             .sges = {right.sge(0, head + 4), right.sge(100, 5), right.sge(200, 50)},
             .sge_count = 3}));
    ASSERT_TRUE(left.nic.post_send(from, send(to, "one, two and three", 2)));
    run();
    EXPECT_EQ(only(right.poll()).length, head + 18);
    EXPECT_EQ(only(left.poll()).status, WorkStatus::ok);
    EXPECT_EQ(right.text(head, 5), "one,#");
    EXPECT_EQ(right.text(100, 6), " two #");
    EXPECT_EQ(right.text(200, 10), "and three#");
  }
}

// The 40 bytes may end anywhere in them.
TEST_F(TwoNics, DatagramsFindTheirPlaceBehindAnyPieces) {
  DatagramQp& from = left.ready_qp(QpType::ud);
  DatagramQp& to = right.ready_qp(QpType::ud);
  for (const std::uint32_t first : {1U, 39U, 40U}) {
    right.fill(0, std::string(400, '#'));
    ASSERT_TRUE(right.nic.post_receive(
        to, {.wr_id = 1,
             .sges = {right.sge(0, first), right.sge(100, kGrhSize - first + 2), right.sge(200, 9)},
             .sge_count = 3}));
    ASSERT_TRUE(left.nic.post_send(from, send(to, "payload", 2)));
    run();
    EXPECT_EQ(only(right.poll()).length, kGrhSize + 7);
    EXPECT_EQ(right.text(100 + kGrhSize - first, 3), "pa#");
    EXPECT_EQ(right.text(200, 6), "yload#");
    (void)left.poll();
  }
}

// As many receives as a process can post must not stop what it sends.
TEST_F(TwoNics, ReceivesDoNotUseUpTheRoomOfSends) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  // 40 queue pairs of it hold 655,360 receives.
  constexpr std::uint32_t kDepth = 16384;
  for (int i = 0; i < 40; ++i) {
    DatagramQp& qp = **left.nic.create_qp({.pd = left.pd, .receive_depth = kDepth});
    left.to_rts(qp);
    for (std::uint32_t n = 0; n < kDepth; ++n) {
      ASSERT_TRUE(left.receive(qp, n));
    }
    EXPECT_FALSE(left.receive(qp, 0));  // full
  }
  ASSERT_TRUE(right.receive(to, 1));
  ASSERT_TRUE(left.nic.post_send(from, send(to, "all the same", 2)));
  run();
  EXPECT_EQ(only(left.poll()).status, WorkStatus::ok);
}

// A NIC whose packets to itself are lost, as on some real fabrics. The sender is told of success
// all the same.
class NoLoopback : public TwoNics {
 protected:
  NoLoopback()
      : TwoNics([] {
          NicConfig config;
          config.loopback = false;
          return config;
        }()) {}
};

TEST_F(NoLoopback, WhatIsSentToOneselfVanishes) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = left.ready_qp();
  ASSERT_TRUE(left.receive(to, 1));
  SendWork work = send(to, "into the void", 2);
  work.ah = *left.nic.create_ah(left.pd, left.address);
  ASSERT_TRUE(left.nic.post_send(from, work));
  run();
  const WorkCompletion done = only(left.poll());
  EXPECT_EQ(done.wr_id, 2U);
  EXPECT_EQ(done.status, WorkStatus::ok);
}

}  // namespace
}  // namespace weft::nic
