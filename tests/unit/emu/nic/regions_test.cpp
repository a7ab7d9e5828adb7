// Tests of memory that goes away while work still uses it.
//
// A program may deregister a region and unmap its pages while requests that name it are under way;
// verbs allow it. From then on no byte of it may be touched, and each request must end exactly
// once. The pages are really unmapped: a touch ends the test program.
#include <sys/mman.h>

#include <algorithm>
#include <tuple>

#include "tests/unit/emu/nic/two_nics.hpp"

namespace weft::nic {
namespace {

// Pages with a key of their own at the left side, which a program may take away: a thread that
// touches them after that dies.
class TakenMemory : public TwoNics {
 protected:
  static constexpr std::size_t kSize = 256 * 1024;
  static constexpr std::uint64_t kAddress = 0x900000;

  ~TakenMemory() override { unmap(); }
  static std::byte* map() {
    void* const data =
        mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(data, MAP_FAILED);
    return static_cast<std::byte*>(data);
  }
  srd::RegionKey add_region() {
    return *left.nic.register_memory(
        srd::Region{.data = pages,
                    .address = kAddress,
                    .length = kSize,
                    .access = srd::Access::local_write | srd::Access::remote_read,
                    .domain = left.pd});
  }
  void unmap() {
    if (pages != nullptr) {
      munmap(pages, kSize);
    }
    pages = nullptr;
  }
  void take_away() {
    ASSERT_TRUE(left.nic.deregister(taken));
    unmap();
  }
  [[nodiscard]] Sge taken_sge(std::uint32_t length) const {
    return {kAddress, length, taken.value()};
  }

  std::byte* pages = map();
  srd::RegionKey taken = add_region();
};

// Four receives, two of them (2 and 4) with a piece of the region: these two end, and the messages
// go to the others in their order.
TEST_F(TakenMemory, PostedReceivesEndAndAreNotWrittenTo) {
  DatagramQp& from = right.ready_qp();
  DatagramQp& to = left.ready_qp();
  const Sge gone{kAddress, 4096, taken.value()};
  ASSERT_TRUE(left.receive(to, 1));
  ASSERT_TRUE(left.nic.post_receive(to, {.wr_id = 2, .sges = {gone}, .sge_count = 1}));
  ASSERT_TRUE(left.receive(to, 3, 4096));
  ASSERT_TRUE(
      left.nic.post_receive(to, {.wr_id = 4, .sges = {left.sge(8192, 1), gone}, .sge_count = 2}));
  take_away();
  std::vector<WorkCompletion> ended = left.poll();
  ASSERT_EQ(ended.size(), 2U);
  EXPECT_EQ(ended[0].wr_id, 2U);
  EXPECT_EQ(ended[1].wr_id, 4U);
  for (const WorkCompletion& done : ended) {
    EXPECT_EQ(done.status, WorkStatus::bad_local_key);
    EXPECT_EQ(done.operation, Operation::receive);
  }
  // Those in other memory stay, in their order.
  const std::uint16_t back = *right.nic.create_ah(right.pd, left.address);
  for (const std::uint64_t wr_id : {1, 3}) {
    SendWork message = send(to, "for whom?", 10 + wr_id);
    message.ah = back;
    ASSERT_TRUE(right.nic.post_send(from, message));
    run();
    EXPECT_EQ(only(left.poll()).wr_id, wr_id);
    EXPECT_EQ(only(right.poll()).status, WorkStatus::ok);
  }
}

class TakenMemoryUnderWork : public TakenMemory,
                             public ::testing::WithParamInterface<std::tuple<Operation, int>> {};

// At every moment of a request's life: waiting, half sent, with answers under way.
TEST_P(TakenMemoryUnderWork, EndsItOnceAndTouchesNothingMore) {
  const auto [operation, microseconds] = GetParam();
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  // Four requests of a quarter each, so that some are under way when the pages go.
  constexpr std::uint32_t kMax = 200 * 1024;
  const std::uint32_t length = operation == Operation::send ? 4000 : kMax / 4;
  for (std::uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(right.receive(to, i));
    ASSERT_TRUE(left.nic.post_send(from, work(operation, to, i, taken_sge(length))));
  }
  SendWork kept = work(operation, to, 100, taken_sge(100));  // from other memory
  kept.sges[0] = left.sge(0, 100);
  ASSERT_TRUE(left.nic.post_send(from, kept));
  right.receive(to, 100);
  run(std::chrono::microseconds{microseconds});
  take_away();
  run(std::chrono::milliseconds{20});
  std::array<int, 4> times{};
  bool kept_done = false;
  for (const WorkCompletion& done : left.poll()) {
    if (done.wr_id == 100) {
      kept_done = done.status == WorkStatus::ok;
      continue;
    }
    ++times.at(done.wr_id);
    EXPECT_TRUE(done.status == WorkStatus::bad_local_key || done.status == WorkStatus::ok);
    if (microseconds == 0) {
      EXPECT_EQ(done.status, WorkStatus::bad_local_key);
    }
  }
  EXPECT_EQ(times, (std::array{1, 1, 1, 1}));
  EXPECT_TRUE(kept_done);
}

INSTANTIATE_TEST_SUITE_P(All, TakenMemoryUnderWork,
                         ::testing::Combine(::testing::Values(Operation::send,
                                                              Operation::rdma_write,
                                                              Operation::rdma_read),
                                            // Microseconds. 0: nothing was sent yet.
                                            ::testing::Values(0, 1, 2, 5)));

// The peer has been heard before, so packets are sent again until it is given up: that must not
// read the pages.
TEST_F(TakenMemory, SilentPeersKeepNothingAlive) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  ASSERT_TRUE(left.nic.post_send(from, work(Operation::rdma_write, to, 0, taken_sge(100))));
  run();
  EXPECT_EQ(only(left.poll()).status, WorkStatus::ok);
  cut = true;
  ASSERT_TRUE(left.nic.post_send(from, work(Operation::rdma_write, to, 1, taken_sge(50'000))));
  run(std::chrono::microseconds{3});
  take_away();
  // Eight times as long as a peer may be silent here.
  run(std::chrono::milliseconds{400});  // retransmission would read it
  EXPECT_EQ(only(left.poll()).status, WorkStatus::bad_local_key);
}

// Nothing is sent again to a peer that never answered before it is given up.
TEST_F(TakenMemory, PeersThatNeverAnsweredKeepNothingAliveEither) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  cut = true;
  ASSERT_TRUE(left.nic.post_send(from, work(Operation::rdma_write, to, 1, taken_sge(50'000))));
  run(std::chrono::microseconds{3});
  take_away();
  run(std::chrono::milliseconds{400});
  EXPECT_EQ(only(left.poll()).status, WorkStatus::unreachable);
}

// What counts is the key, not the address: another region over the same bytes still lends them.
TEST_F(TakenMemory, WorkOfAnotherRegionOverTheSameBytesGoesOn) {
  DatagramQp& from = left.ready_qp();
  DatagramQp& to = right.ready_qp();
  const srd::RegionKey other = add_region();
  ASSERT_TRUE(right.receive(to, 1));
  ASSERT_TRUE(right.receive(to, 2));
  SendWork message = work(Operation::send, to, 1, taken_sge(100));
  ASSERT_TRUE(left.nic.post_send(from, message));
  message.wr_id = 2;
  message.sges[0].key = other.value();
  ASSERT_TRUE(left.nic.post_send(from, message));
  ASSERT_TRUE(left.nic.deregister(taken));
  run();
  std::vector<WorkCompletion> ended = left.poll();
  ASSERT_EQ(ended.size(), 2U);
  std::sort(ended.begin(), ended.end(),
            [](const auto& a, const auto& b) { return a.wr_id < b.wr_id; });
  EXPECT_EQ(ended[0].status, WorkStatus::bad_local_key);
  EXPECT_EQ(ended[1].status, WorkStatus::ok);
  ASSERT_TRUE(left.nic.deregister(other));
}

// Remote access was safe before: keys are looked up for each packet.
TEST_F(TakenMemory, ReadsByAPeerEndInARemoteError) {
  DatagramQp& from = right.ready_qp();
  DatagramQp& to = left.ready_qp();
  SendWork read;
  read.operation = Operation::rdma_read;
  read.ah = *right.nic.create_ah(right.pd, left.address);
  read.destination = to.number();
  read.sges[0] = right.sge(0, 60 * 1024);
  read.sge_count = 1;
  read.remote_address = kAddress;
  read.remote_key = taken.value();
  ASSERT_TRUE(right.nic.post_send(from, read));
  run(std::chrono::microseconds{2});
  take_away();
  run(std::chrono::milliseconds{20});
  const WorkStatus status = only(right.poll()).status;
  EXPECT_TRUE(status == WorkStatus::remote_bad_key || status == WorkStatus::ok);
}

}  // namespace
}  // namespace weft::nic
