// Tests of the EFA queues as a program that writes them itself sees them.
//
// Rings, doorbells and completion entries are shared memory of which no call tells the device
// anything: what libefa relies on (phases, copies, arming) has to hold for whoever writes it. The
// queue pair talks to itself, so each message gives two completions.
#include <poll.h>
#include <unistd.h>

#include "tests/unit/emu/kernel/queue_client.hpp"

namespace weft::kernel {
namespace {

using Queues = QueueClient;

// 100 completions through a ring of four, 50 descriptors through rings of eight.
TEST_F(Queues, PhaseTogglesForManyLapsOfAllRings) {
  to_rts(qp);
  for (std::uint16_t i = 0; i < 50; ++i) {
    const std::string text = "message " + std::to_string(i);
    put_receive(i, 100, 64);
    ring(rq_doorbell, received);
    put_inline(static_cast<std::uint16_t>(1000 + i), text);
    ring(sq_doorbell, sent);
    for (int side = 0; side < 2; ++side) {
      const Cqe entry = take_one();
      EXPECT_EQ(entry.status, 0);
      EXPECT_EQ(entry.req_id, is_send(entry) ? 1000 + i : i);
      EXPECT_EQ(entry.qpn, qp.core.qpn);
      if (!is_send(entry)) {
        EXPECT_EQ(entry.length, text.size());
        EXPECT_EQ(entry.ah, ah);
        EXPECT_EQ(entry.source_qpn, qp.core.qpn);
      }
    }
    EXPECT_EQ(std::memcmp(memory.data() + 100, text.data(), text.size()), 0);
  }
}

// With one entry every completion is a new lap.
TEST_F(Queues, RingOfOneEntryFlipsItsPhaseEachTime) {
  make_cq(-1, 1);
  make_qp(qp_words(), qp_request(pd, cq.handle));
  to_rts(qp);
  efa::WqeHead wqe = head(1, efa::kOpSend, 0);
  wqe.ah = 0x7777;  // fails at once: one completion each
  for (int i = 0; i < 5; ++i) {
    put_wqe(wqe, "", 0);
    ring(sq_doorbell, sent);
    EXPECT_EQ(take_one().status, static_cast<std::uint8_t>(efa::Status::bad_ah));
    Cqe none{};
    EXPECT_FALSE(take(none));
  }
}

TEST_F(Queues, WorkIsCopiedWhenItIsFetched) {
  to_rts(qp);
  put_inline(1, "early");
  ring(sq_doorbell, sent);
  std::memset(sq, 0xFF,
              8 * wqe_size);  // the library may reuse the slot while the work is under way
  put_receive(2, 0, 64);
  ring(rq_doorbell, received);
  // The send found no receive at first: it is tried again after a while, from the device's own
  // copy.
  for (int i = 0; i < 20; ++i) {
    runner.poll();
  }
  EXPECT_EQ(take_one().status, 0);
  EXPECT_EQ(take_one().status, 0);
  EXPECT_EQ(std::memcmp(memory.data(), "early", 5), 0);
}

// 3 + 7 bytes out, 4 + 6 in: the pieces of the two sides do not match.
TEST_F(Queues, ScatteredReceiveAndGatheredSend) {
  auto request = qp_request(pd, cq.handle);
  request.max_recv_sge = 2;
  efa::QpCommand own = qp_words();
  make_qp(own, request);
  to_rts(qp);
  put_receive(3, 100, 4, efa::kFirstDescriptor);
  put_receive(0, 200, 100, efa::kLastDescriptor);
  ring(rq_doorbell, received);
  std::memcpy(memory.data(), "abcdefghij", 10);
  const auto address = reinterpret_cast<std::uint64_t>(memory.data());
  const auto low = static_cast<std::uint32_t>(address);
  const auto high = static_cast<std::uint32_t>(address >> 32);
  const efa::WireSge pieces[2] = {{3, lkey, low, high}, {7, lkey, low + 3, high}};
  efa::WqeHead wqe = head(9, efa::kOpSend, 0);
  wqe.length = 2;
  put_wqe(wqe, pieces, sizeof pieces);
  ring(sq_doorbell, sent);
  EXPECT_EQ(take_one().status, 0);
  EXPECT_EQ(take_one().status, 0);
  EXPECT_EQ(std::memcmp(memory.data() + 100, "abcd", 4), 0);
  EXPECT_EQ(std::memcmp(memory.data() + 200, "efghij", 6), 0);
}

TEST_F(Queues, ReceivesOfThreePiecesAreGathered) {
  auto request = qp_request(pd, cq.handle);
  request.max_recv_sge = 3;
  request.max_recv_wr = 2;
  make_qp(qp_words(), request);
  to_rts(qp);
  for (int lap = 0; lap < 4; ++lap) {  // 3 does not divide 8: they wrap around in all ways
    put_receive(3, 100, 4, efa::kFirstDescriptor);
    put_receive(0, 200, 5, 0);
    put_receive(0, 300, 60, efa::kLastDescriptor);
    ring(rq_doorbell, received);
    put_inline(1, "one, two and three");
    ring(sq_doorbell, sent);
    for (int side = 0; side < 2; ++side) {
      EXPECT_EQ(take_one().status, 0);
    }
    EXPECT_EQ(std::memcmp(memory.data() + 100, "one,", 4), 0);
    EXPECT_EQ(std::memcmp(memory.data() + 200, " two ", 5), 0);
    EXPECT_EQ(std::memcmp(memory.data() + 300, "and three", 9), 0);
    std::fill(memory.begin(), memory.end(), std::byte{0});
  }
}

// The application takes its memory back although receives are posted in it: they end at once, and
// what comes later finds none of them.
TEST_F(Queues, DeregisteredMemoryIsNotWrittenTo) {
  to_rts(qp);
  void* const page =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  std::array<std::uint32_t, 3> keys{};
  ASSERT_EQ(reg_mr(pd, page, 4096, 1, keys), 0);
  const auto address = reinterpret_cast<std::uint64_t>(page);
  const efa::ReceiveDescriptor descriptor{static_cast<std::uint32_t>(address),
                                          static_cast<std::uint32_t>(address >> 32), 21, 4096,
                                          keys[1] | efa::kFirstDescriptor | efa::kLastDescriptor};
  std::memcpy(rq, &descriptor, sizeof descriptor);
  received = 1;
  put_receive(22, 0, 64);
  ring(rq_doorbell, received);
  ASSERT_EQ(modify_qp(qp.core.handle, 0x1, nic::QpState::rts), 0);  // the device looks
  ASSERT_EQ(destroy(abi::Command::dereg_mr, keys[0]), 0);
  ASSERT_EQ(munmap(page, 4096), 0);
  Cqe entry = take_one();
  EXPECT_EQ(entry.req_id, 21U);
  EXPECT_FALSE(is_send(entry));
  EXPECT_EQ(static_cast<efa::Status>(entry.status), efa::Status::bad_lkey);
  put_inline(1, "who is there?");
  ring(sq_doorbell, sent);
  for (int side = 0; side < 2; ++side) {
    entry = take_one();
    EXPECT_EQ(entry.status, 0);
    EXPECT_EQ(entry.req_id, is_send(entry) ? 1 : 22);
  }
}

// A number of 64 bits takes the place of fields that a completion of a send does not need.
TEST_F(Queues, WideIdsComeBackWhole) {
  make_cq(-1, 8, efa::kCqRequestId64Flag);
  efa::QpCommand own = qp_words();
  own.flags = efa::kQpRequestId64Flag;
  own.sq_ring_size = 8 * 128;
  make_qp(own, qp_request(pd, cq.handle));
  to_rts(qp);
  efa::WqeHead wqe = head(0x1111, efa::kOpSend, 0);
  wqe.req_id_high = {0x2222, 0x3333, 0x4444};
  wqe.ah = 0x7777;
  put_wqe(wqe, "", 0);
  ring(sq_doorbell, sent);
  const Cqe entry = take_one();
  EXPECT_EQ(entry.req_id, 0x1111);
  EXPECT_EQ(entry.length, 0x2222);
  EXPECT_EQ(entry.ah, 0x3333);
  EXPECT_EQ(entry.source_qpn, 0x4444);
}

// The old doorbell still stands in memory at that moment: it must not be taken for new work.
TEST_F(Queues, ResetStartsTheIndicesOver) {
  to_rts(qp);
  put_receive(1, 0, 64);
  ring(rq_doorbell, received);
  put_inline(2, "once");
  ring(sq_doorbell, sent);
  (void)take_one();
  (void)take_one();
  ASSERT_EQ(modify_qp(qp.core.handle, 1, nic::QpState::reset), 0);
  sent = received = 0;  // as the library does, without ringing
  to_rts(qp);
  Cqe none{};
  EXPECT_FALSE(take(none));
  put_receive(3, 0, 64);
  ring(rq_doorbell, received);
  put_inline(4, "twice");
  ring(sq_doorbell, sent);
  EXPECT_EQ(take_one().status, 0);
  EXPECT_EQ(take_one().status, 0);
}

TEST_F(Queues, EventsComeOnceForEachArming) {
  std::uint32_t channel = 0;
  ASSERT_EQ(command_for(abi::Command::create_comp_channel, channel), 0);
  const int fd = static_cast<int>(channel);
  make_cq(fd, 8, efa::kCqWithChannelFlag);
  make_qp(qp_words(), qp_request(pd, cq.handle));
  to_rts(qp);
  const auto readable = [fd] {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  };
  const auto fail_one = [this] {
    efa::WqeHead wqe = head(1, efa::kOpSend, 0);
    wqe.ah = 0x7777;
    put_wqe(wqe, "", 0);
    ring(sq_doorbell, sent);
  };
  fail_one();
  EXPECT_FALSE(readable());          // not armed
  ring(cq_doorbell, efa::kArm | 0);  // one entry is unreaped: at once
  ASSERT_TRUE(readable());
  std::uint64_t element = 0;
  ASSERT_EQ(::read(fd, &element, sizeof element), 8);
  EXPECT_EQ(element, 0xC0FFEEU);
  // Bits 29 and 30 count the arms, so that an arm of the same index is not taken for the one
  // before.
  ring(cq_doorbell, efa::kArm | 1U << 29 | 1);
  EXPECT_FALSE(readable());
  fail_one();
  ASSERT_TRUE(readable());
  fail_one();  // no second event without arming again
  // Destroying reports the events that were read, here the first one; the unread one is taken back.
  ASSERT_EQ(destroy(abi::Command::destroy_qp, qp.core.handle), 0);
  std::array<std::uint32_t, 2> events{};
  ASSERT_EQ(command(abi::Command::destroy_cq, join(std::uint64_t{0}, cq.handle, std::uint32_t{0}),
                    std::as_writable_bytes(std::span(events))),
            0);
  EXPECT_EQ(events[0], 1U);
  EXPECT_FALSE(readable());
  ::close(fd);
}

// A poll stores the index that it has reached over the word that a moment before armed the queue.
// On hardware each store arrives by itself; in memory only the last one can be seen, so an arm must
// be noticed before it is overwritten.
TEST_F(Queues, AnArmingCountsWhateverIsStoredAfterIt) {
  std::uint32_t channel = 0;
  ASSERT_EQ(command_for(abi::Command::create_comp_channel, channel), 0);
  const int fd = static_cast<int>(channel);
  make_cq(fd, 8, efa::kCqWithChannelFlag);
  make_qp(qp_words(), qp_request(pd, cq.handle));
  to_rts(qp);
  const auto readable = [fd] {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  };
  const auto fail_some = [this](int count) {
    for (int i = 0; i < count; ++i) {
      efa::WqeHead wqe = head(1, efa::kOpSend, 0);
      wqe.ah = 0x7777;
      put_wqe(wqe, "", 0);
    }
    ring(sq_doorbell, sent);
  };
  const auto store = [this](std::uint32_t word) {
    std::atomic_ref(*reinterpret_cast<std::uint32_t*>(cq_doorbell)).store(word);
  };
  // A ring full of unreaped entries is not an empty one.
  fail_some(8);
  ring(cq_doorbell, efa::kArm | 0);
  ASSERT_TRUE(readable());
  std::uint64_t element = 0;
  ASSERT_EQ(::read(fd, &element, sizeof element), 8);
  // Armed, told to the device, and then hidden by the store of a poll that reaped.
  store(efa::kArm | 1U << 29 | 8);
  runner.device.look_at_arms();
  store(1U << 29 | 8);
  EXPECT_FALSE(readable());
  fail_some(1);
  EXPECT_TRUE(readable());
  ::close(fd);
}

// A device cannot refuse a store: it stops the queue pair, and tells by an event which one (0xBEEF
// is its handle).
TEST_F(Queues, NonsenseInTheDoorbellFailsTheQueuePairAndSaysSo) {
  to_rts(qp);
  ring(sq_doorbell, 9);  // more than the ring holds
  abi::QueryQp attributes{};
  ASSERT_EQ(command_for(abi::Command::query_qp, attributes, qp.core.handle, std::uint32_t{1}), 0);
  EXPECT_EQ(attributes.qp_state, static_cast<std::uint8_t>(nic::QpState::error));
  EventChannel::Record event{};
  ASSERT_EQ(::read(async_fd, &event, sizeof event), 16);
  EXPECT_EQ(event.element, 0xBEEFU);
  EXPECT_EQ(event.type, static_cast<std::uint32_t>(abi::AsyncEvent::qp_fatal));
  std::uint32_t reported = 0;
  ASSERT_EQ(command_for(abi::Command::destroy_qp, reported, qp.core.handle, std::uint32_t{0}), 0);
  EXPECT_EQ(reported, 1U);
}

TEST_F(Queues, ReceiveDescriptorsWithoutBeginOrEndFailTheQueuePair) {
  to_rts(qp);
  put_receive(1, 0, 64, 0);
  ring(rq_doorbell, received);
  EXPECT_EQ(modify_qp(qp.core.handle, 1, nic::QpState::rts), EINVAL);  // it is in error
}

// The device has mappings of its own. Without them a program that unmaps early would crash the
// thread that serves the device.
TEST_F(Queues, QueuesOutliveTheApplicationsMappings) {
  to_rts(qp);
  munmap(sq, 4096);
  munmap(cq_ring, cq.reply.ring_size);
  EXPECT_EQ(destroy(abi::Command::destroy_qp, qp.core.handle), 0);
  EXPECT_EQ(destroy(abi::Command::destroy_cq, cq.handle), 0);
}

}  // namespace
}  // namespace weft::kernel
