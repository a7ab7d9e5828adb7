// Tests of registered memory that the application has unmapped or protected, which is legal: the
// work that needs it fails, other work goes on.
#include <algorithm>
#include <vector>

#include "tests/unit/emu/nic/two_nics.hpp"

namespace weft::nic {
namespace {

// Stands for the pages that are not there. A touch of them copies nothing, and says so.
struct Gone {
  static inline std::uintptr_t begin = 0;
  static inline std::uintptr_t end = 0;
  static inline int touches = 0;

  static bool touch(void (*work)(void*), void* argument, const void* at, std::size_t length) {
    const auto first = reinterpret_cast<std::uintptr_t>(at);
    if (first < end && first + length > begin) {
      ++touches;
      return false;
    }
    work(argument);
    return true;
  }
};

// Of the 64 KiB of a side the last 48 are taken away; 32 KiB is more than a packet, so that a
// transfer begins in what is there and ends in what is not.
constexpr std::uint32_t kGoneAt = 16 * 1024;
constexpr std::uint32_t kMax = 32 * 1024;

// Memory is not really unmapped: `lent_memory.touch` stands for what catches faults in programs,
// and says that accesses to the range fail. So a test needs no signal handler.
class LentMemory : public TwoNics {
 protected:
  LentMemory() {
    lent_memory.touch = Gone::touch;
    Gone::touches = 0;
  }
  ~LentMemory() override {
    lent_memory.touch = nullptr;
    Gone::begin = Gone::end = 0;
  }
  // From the offset kGoneAt on.
  static void take_away(Side& side) {
    Gone::begin = reinterpret_cast<std::uintptr_t>(side.memory.data()) + kGoneAt;
    Gone::end = reinterpret_cast<std::uintptr_t>(side.memory.data()) + side.memory.size();
  }
  // Of everything that ended at a side: the number and how.
  static std::vector<std::pair<std::uint64_t, WorkStatus>> ends(Side& side) {
    std::vector<std::pair<std::uint64_t, WorkStatus>> all;
    for (const WorkCompletion& done : side.poll()) {
      all.emplace_back(done.wr_id, done.status);
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  using Ends = std::vector<std::pair<std::uint64_t, WorkStatus>>;
};

class LentSource : public LentMemory, public ::testing::WithParamInterface<Operation> {};

// Three requests of which the second one reads what is gone; both others must not notice.
TEST_P(LentSource, IsALocalProtectionErrorOfItsRequestOnly) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(right.receive(to, i));
  }
  left.fill(0, "here");
  take_away(left);
  const std::uint32_t length = GetParam() == Operation::send ? 2000 : kMax;
  ASSERT_TRUE(left.nic.post_send(from, work(GetParam(), to, 1, left.sge(0, 100))));
  ASSERT_TRUE(left.nic.post_send(from, work(GetParam(), to, 2, left.sge(kGoneAt - 1000, length))));
  ASSERT_TRUE(left.nic.post_send(from, work(GetParam(), to, 3, left.sge(0, 100))));
  run(std::chrono::milliseconds{20});
  EXPECT_EQ(ends(left),
            (Ends{{1, WorkStatus::ok}, {2, WorkStatus::bad_local_key}, {3, WorkStatus::ok}}));
  EXPECT_EQ(right.text(0, 4), "here");
  EXPECT_EQ(left.engine.outstanding(), 0U);
}

INSTANTIATE_TEST_SUITE_P(All, LentSource,
                         ::testing::Values(Operation::send, Operation::rdma_write));

// The first read begins in what is there and ends in what is not; the second lies in what is there,
// and must not notice.
TEST_F(LentMemory, OfAReadsTargetIsALocalProtectionError) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  take_away(left);
  ASSERT_TRUE(left.nic.post_send(from, work(Operation::rdma_read, to, 1, left.sge(0, kMax))));
  ASSERT_TRUE(left.nic.post_send(from, work(Operation::rdma_read, to, 2, left.sge(0, 4000))));
  run(std::chrono::milliseconds{20});
  EXPECT_EQ(ends(left), (Ends{{1, WorkStatus::bad_local_key}, {2, WorkStatus::ok}}));
}

class LentTarget : public LentMemory, public ::testing::WithParamInterface<Operation> {};

// The same at the other side: its engine refuses, and the sender is told.
TEST_P(LentTarget, IsARemoteAccessErrorOfItsRequestOnly) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  take_away(right);
  ASSERT_TRUE(left.nic.post_send(from, work(GetParam(), to, 1, left.sge(0, 1000))));
  ASSERT_TRUE(left.nic.post_send(from, work(GetParam(), to, 2, left.sge(0, kMax))));
  ASSERT_TRUE(left.nic.post_send(from, work(GetParam(), to, 3, left.sge(0, 1000))));
  run(std::chrono::milliseconds{20});
  EXPECT_EQ(ends(left),
            (Ends{{1, WorkStatus::ok}, {2, WorkStatus::remote_bad_key}, {3, WorkStatus::ok}}));
  EXPECT_EQ(left.engine.outstanding(), 0U);
}

INSTANTIATE_TEST_SUITE_P(All, LentTarget,
                         ::testing::Values(Operation::rdma_read, Operation::rdma_write));

TEST_F(LentMemory, OfAPostedReceiveEndsItAndTheNextOneGetsTheMessage) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  ASSERT_TRUE(right.receive(to, 1, kGoneAt, 100));
  ASSERT_TRUE(right.receive(to, 2, kGoneAt + 100, 100));
  ASSERT_TRUE(right.receive(to, 3, 0, 100));
  take_away(right);
  ASSERT_TRUE(left.nic.post_send(from, send(to, "for the third", 9)));
  run();
  EXPECT_EQ(
      ends(right),
      (Ends{{1, WorkStatus::bad_local_key}, {2, WorkStatus::bad_local_key}, {3, WorkStatus::ok}}));
  EXPECT_EQ(ends(left), (Ends{{9, WorkStatus::ok}}));
  EXPECT_EQ(right.text(0, 13), "for the third");
}

// A datagram's receive is touched when it is posted.
TEST_F(LentMemory, OfADatagramsReceiveEndsItAtOnce) {
  DatagramQp& to = right.ready_qp(QpType::ud);
  take_away(right);
  ASSERT_TRUE(right.receive(to, 1, kGoneAt, 100));
  EXPECT_EQ(ends(right), (Ends{{1, WorkStatus::bad_local_key}}));
}

TEST_F(LentMemory, OfADatagramsSourceIsToldItsSender) {
  DatagramQp& from = left.ready_qp(QpType::ud);
  DatagramQp& to = right.ready_qp(QpType::ud);
  ASSERT_TRUE(right.receive(to, 1));
  take_away(left);
  ASSERT_TRUE(left.nic.post_send(from, work(Operation::send, to, 1, left.sge(kGoneAt, 100))));
  run(std::chrono::milliseconds{20});
  EXPECT_EQ(ends(left), (Ends{{1, WorkStatus::bad_local_key}}));
}

// What has left needs its memory no more.
TEST_F(LentMemory, ThatWasReadInTimeIsNotMissed) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  ASSERT_TRUE(right.receive(to, 1));
  ASSERT_TRUE(left.nic.post_send(from, work(Operation::send, to, 1, left.sge(kGoneAt, 100))));
  run(std::chrono::microseconds{1});
  take_away(left);
  run();
  EXPECT_EQ(ends(left), (Ends{{1, WorkStatus::ok}}));
  EXPECT_EQ(Gone::touches, 0);
}

}  // namespace
}  // namespace weft::nic
