// Owns the stories of eager messages: short ones that do not wait for a buffer.
#include <gtest/gtest.h>

#include <deque>

#include "srd/base/rng.hpp"
#include "tests/unit/integration/nccl/line_lab.hpp"

namespace weft::testing {
namespace {

using nccl::Buffer;
using nccl::Outcome;
using nccl::Request;

constexpr std::size_t kMemory = 1 << 16;

TEST(NcclEager, ShortMessagesAreOverBeforeAnyBufferIsThere) {
  Line line(kMemory);
  for (std::uint32_t i = 0; i < nccl::kEagerWindow; ++i) {
    Request* const sent = line.send_bytes(kShort, i);  // over the bytes of the one before
    ASSERT_NE(sent, nullptr);
    EXPECT_EQ(ended(sent), Outcome::ok);
    EXPECT_EQ(sent->sizes[0], kShort);
  }
  Request* const late = line.send_bytes(kShort, 99);
  ASSERT_NE(late, nullptr);
  line.lab.run_for(1ms);
  EXPECT_EQ(ended(late), std::nullopt) << "the receiver keeps no more than a window of them";
  for (std::uint32_t i = 0; i < nccl::kEagerWindow; ++i) {
    Request* const received = line.receive(0, kShort);
    ASSERT_NE(received, nullptr);
    EXPECT_EQ(ended(received), Outcome::ok) << i;
    EXPECT_EQ(received->sizes[0], kShort);
    EXPECT_TRUE(has_bytes(std::span{line.in}.first(kShort), i)) << i;
  }
  EXPECT_EQ(line.outcome(line.receive(0, kShort)), Outcome::ok);
  EXPECT_EQ(line.outcome(late), Outcome::ok);
  EXPECT_TRUE(has_bytes(std::span{line.in}.first(kShort), 99));
  EXPECT_EQ(line.lab.core(0).counters().eager, nccl::kEagerWindow);
}

// The receiver gives an eager message the oldest buffer with its tag that is not filled: that of a
// longer message that is still under way would be the wrong one.
TEST(NcclEager, NoneGoesAheadOfAnEarlierWrite) {
  Line line(kMemory);
  Request* const first = line.receive(0, 4096);
  Request* const second = line.receive(4096, 4096);
  Request* const big = line.send_bytes(4096, 1);
  std::vector<std::byte> before(line.out.begin(), line.out.begin() + 4096);
  Request* const small = line.send_bytes(kShort, 2);
  EXPECT_EQ(ended(small), std::nullopt);
  std::copy(before.begin(), before.end(), line.out.begin());
  fill_bytes(std::span{line.out}.first(kShort), 1);  // what the big one begins with is the same
  EXPECT_EQ(line.outcome(first), Outcome::ok);
  EXPECT_EQ(first->sizes[0], 4096);
  EXPECT_EQ(line.outcome(second), Outcome::ok);
  EXPECT_EQ(second->sizes[0], kShort);
  EXPECT_EQ(line.outcome(big), Outcome::ok);
  EXPECT_EQ(line.outcome(small), Outcome::ok);
  EXPECT_EQ(line.lab.core(0).counters().eager, 0);
}

// Buffers are filled before their sender has heard of them, and then the slots are used again:
// announcements come that are further ahead than a receiver has slots.
TEST(NcclEager, AnnouncementsMayBeLate) {
  NcclLabConfig config = nccl_lab_config();
  config.link.reorder = 0.3;
  config.link.jitter = 200us;
  Line line(kMemory, config);
  constexpr std::size_t kCount = 600;
  std::deque<Request*> receives;
  std::size_t sent = 0;
  std::size_t posted = 0;
  std::size_t seen = 0;
  Request* waiting = nullptr;
  EXPECT_TRUE(line.lab.run_until(
      [&] {
        for (Request* one = nullptr;
             posted < kCount && (one = line.receive(posted * kShort, kShort)) != nullptr;) {
          receives.push_back(one);
          ++posted;
        }
        // The bytes of one that waits are lent.
        while (waiting == nullptr || ended(waiting)) {
          waiting = sent < kCount ? line.send_bytes(kShort, sent) : nullptr;
          if (waiting == nullptr) {
            break;
          }
          ++sent;
        }
        while (!receives.empty() && receives.front()->state.load() != Request::State::pending) {
          EXPECT_EQ(ended(receives.front()), Outcome::ok);
          EXPECT_TRUE(has_bytes(std::span{line.in}.subspan(seen * kShort, kShort), seen)) << seen;
          receives.pop_front();
          ++seen;
        }
        return seen == kCount;
      },
      5s));
  EXPECT_EQ(line.lab.core(0).counters().stray_controls, 0U);
  EXPECT_EQ(line.lab.core(1).counters().stray_controls, 0U);
}

// Nobody will ever take them.
TEST(NcclEager, MessagesToAnEndThatIsGoneEndTheConnection) {
  Line line(kMemory);
  line.lab.core(1).close(*line.ends.receiver);
  EXPECT_EQ(ended(line.send_bytes(kShort, 1)), Outcome::ok);
  line.lab.run_for(1ms);
  EXPECT_EQ(ended(line.send_bytes(kShort, 2)), Outcome::remote_error);
}

// The receiver posts memory, takes it back, and only then the message comes.
TEST(NcclEager, MemoryThatWasTakenBackIsNotTouched) {
  Line line(kMemory);
  Request* const received = line.receive(0, kShort);
  line.lab.run_for(1ms);
  EXPECT_EQ(ended(line.send_bytes(kShort, 1)), Outcome::ok);
  EXPECT_TRUE(line.lab.core(1).deregister(*line.ends.receiver, line.in_region));
  line.lab.run_for(1ms);
  EXPECT_EQ(ended(received), Outcome::invalid_usage);
  for (std::size_t i = 0; i < kShort; ++i) {
    ASSERT_EQ(line.in[i], std::byte{0xA5});
  }
}

// Eager messages to one peer that stands still keep all buffers of control messages.
TEST(NcclEager, OneStoppedPeerDoesNotHoldUpTheOthers) {
  NcclLab lab(3);
  std::vector<std::byte> out(1 << 12);
  std::vector<std::byte> in(1 << 12);
  std::vector<NcclLab::Connection> ends;
  for (int i = 0; i < 33; ++i) {
    ends.push_back(lab.connect(0, 2));
  }
  const auto other = lab.connect(0, 1);
  const auto back = lab.connect(1, 0);
  lab.run_for(1ms);
  lab.world().pause(2);
  for (const auto& one : ends) {
    nccl::CommRegion* const from =
        *lab.core(0).register_memory(*one.sender, out.data(), out.size());
    for (int i = 0; i < 16; ++i) {
      Request* request = nullptr;
      EXPECT_EQ(lab.core(0).send(*one.sender, out.data(), 8, 0, from, request), Outcome::ok);
    }
  }
  nccl::CommRegion* const to = *lab.core(0).register_memory(*back.receiver, in.data(), in.size());
  const Buffer buffer{in.data(), kShort, 0, to};
  Request* request = nullptr;
  EXPECT_TRUE(lab.run_until(
      [&] {
        EXPECT_EQ(lab.core(0).receive(*back.receiver, {&buffer, 1}, false, request), Outcome::ok);
        return request != nullptr;
      },
      500ms))
      << "no receive from rank 1 can be posted while rank 2 stands still";
  lab.world().resume(2);
  (void)other;
}

}  // namespace
}  // namespace weft::testing
