// Owns the stories of eager messages: short ones that do not wait for a buffer.
#include <gtest/gtest.h>

#include <deque>

#include "srd/base/rng.hpp"
#include "tests/unit/integration/nccl/core_lab.hpp"

namespace weft::testing {
namespace {

using nccl::Buffer;
using nccl::Outcome;
using nccl::Request;

constexpr std::size_t kShort = 64;

// One connection, and memory that is registered at both ends.
struct Line {
  NcclLab lab;
  NcclLab::Connection ends;
  std::vector<std::byte> out;
  std::vector<std::byte> in;
  nccl::CommRegion* from;
  nccl::CommRegion* to;

  explicit Line(const NcclLabConfig& config = nccl_lab_config(), std::size_t size = 1 << 16)
      : lab(2, config),
        ends(lab.connect(0, 1)),
        out(size),
        in(size, std::byte{0xA5}),
        from(*lab.core(0).register_memory(*ends.sender, out.data(), size)),
        to(*lab.core(1).register_memory(*ends.receiver, in.data(), size)) {}

  [[nodiscard]] Request* send(std::size_t size, std::uint64_t seed, std::int64_t tag = 0) {
    fill_bytes(std::span{out}.first(size), seed);
    Request* request = nullptr;
    EXPECT_EQ(lab.core(0).send(*ends.sender, out.data(), size, tag, from, request), Outcome::ok);
    return request;
  }
  [[nodiscard]] Request* receive(std::size_t at, std::size_t size, std::int64_t tag = 0) {
    const Buffer buffer{in.data() + at, size, tag, to};
    Request* request = nullptr;
    EXPECT_EQ(lab.core(1).receive(*ends.receiver, {&buffer, 1}, false, request), Outcome::ok);
    return request;
  }
  [[nodiscard]] Outcome outcome(Request* request) {
    std::optional<Outcome> end;
    EXPECT_TRUE(lab.run_until([&] { return (end = ended(request)).has_value(); }, 5s));
    return end.value_or(Outcome::internal_error);
  }
};

TEST(NcclEager, ShortMessagesAreOverBeforeAnyBufferIsThere) {
  Line line;
  for (std::uint32_t i = 0; i < nccl::kEagerWindow; ++i) {
    Request* const sent = line.send(kShort, i);  // over the bytes of the one before
    ASSERT_NE(sent, nullptr);
    EXPECT_EQ(ended(sent), Outcome::ok);
    EXPECT_EQ(sent->sizes[0], kShort);
  }
  Request* const late = line.send(kShort, 99);
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
  Line line;
  Request* const first = line.receive(0, 4096);
  Request* const second = line.receive(4096, 4096);
  Request* const big = line.send(4096, 1);
  std::vector<std::byte> before(line.out.begin(), line.out.begin() + 4096);
  Request* const small = line.send(kShort, 2);
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

// Its sends have ended, so a sender may close its end and let the memory go.
TEST(NcclEager, WhatWasSentBeforeACloseIsReceivedAfterIt) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    NcclLabConfig config = nccl_lab_config();
    config.seed = seed;
    config.link.reorder = 0.5;
    config.link.jitter = 20us;
    config.link.loss = 0.2;
    Line line(config);
    const std::uint32_t count = 1 + static_cast<std::uint32_t>(seed) % nccl::kEagerWindow;
    Request* const early = seed % 2 == 0 ? line.receive(0, kShort, 1) : nullptr;
    for (std::uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(ended(line.send(kShort, i, i % 3)), Outcome::ok);
    }
    line.lab.core(0).close(*line.ends.sender);
    if (seed % 3 != 0) {
      line.lab.run_for(std::chrono::microseconds{seed * 7});
    }
    std::vector<bool> seen(count);
    if (early != nullptr) {
      EXPECT_EQ(line.outcome(early), count > 1 ? Outcome::ok : Outcome::remote_error);
      if (count > 1) {
        EXPECT_TRUE(has_bytes(std::span{line.in}.first(kShort), 1));
        seen[1] = true;
      }
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      if (!seen[i]) {
        Request* const received = line.receive(0, kShort, i % 3);
        ASSERT_NE(received, nullptr);
        EXPECT_EQ(line.outcome(received), Outcome::ok) << i;
        EXPECT_TRUE(has_bytes(std::span{line.in}.first(kShort), i)) << i;
      }
    }
    EXPECT_EQ(line.outcome(line.receive(0, kShort)), Outcome::remote_error);
  }
}

// Buffers are filled before their sender has heard of them, and then the slots are used again:
// announcements come that are further ahead than a receiver has slots.
TEST(NcclEager, AnnouncementsMayBeLate) {
  NcclLabConfig config = nccl_lab_config();
  config.link.reorder = 0.3;
  config.link.jitter = 200us;
  Line line(config);
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
          waiting = sent < kCount ? line.send(kShort, sent) : nullptr;
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
  Line line;
  line.lab.core(1).close(*line.ends.receiver);
  EXPECT_EQ(ended(line.send(kShort, 1)), Outcome::ok);
  line.lab.run_for(1ms);
  EXPECT_EQ(ended(line.send(kShort, 2)), Outcome::remote_error);
}

// Then a send tells of a message that does not fit, although it was under way before that could be
// known. Its memory is not lent meanwhile.
TEST(NcclEager, WhereSizesMustBeEqualASendEndsWhenItsBufferIsKnown) {
  Line line;
  line.ends.sender->exact = true;
  Request* const sent = line.send(kShort, 1);
  line.lab.run_for(1ms);
  EXPECT_EQ(ended(sent), std::nullopt);
  EXPECT_TRUE(line.lab.core(0).deregister(*line.ends.sender, line.from));
  fill_bytes(std::span{line.out}.first(kShort), 2);
  Request* const received = line.receive(0, kShort);
  EXPECT_EQ(ended(received), Outcome::ok);
  EXPECT_TRUE(has_bytes(std::span{line.in}.first(kShort), 1));
  EXPECT_EQ(line.outcome(sent), Outcome::ok);
}

// For a group there is all that it takes, or nothing.
TEST(NcclEager, GroupAfterACloseTakesEachMessageOnce) {
  Line line;
  EXPECT_EQ(ended(line.send(kShort, 1)), Outcome::ok);
  line.lab.core(0).close(*line.ends.sender);
  line.lab.run_for(1ms);
  const Buffer buffers[] = {{line.in.data(), kShort, 0, line.to},
                            {line.in.data() + kShort, kShort, 0, line.to}};
  Request* both = nullptr;
  EXPECT_EQ(line.lab.core(1).receive(*line.ends.receiver, buffers, false, both), Outcome::ok);
  EXPECT_EQ(ended(both), Outcome::remote_error);
  Request* one = nullptr;
  EXPECT_EQ(line.lab.core(1).receive(*line.ends.receiver, {buffers, 1}, false, one), Outcome::ok);
  EXPECT_EQ(ended(one), Outcome::ok);
  EXPECT_TRUE(has_bytes(std::span{line.in}.first(kShort), 1));
}

// The receiver posts memory, takes it back, and only then the message comes.
TEST(NcclEager, MemoryThatWasTakenBackIsNotTouched) {
  Line line;
  Request* const received = line.receive(0, kShort);
  line.lab.run_for(1ms);
  EXPECT_EQ(ended(line.send(kShort, 1)), Outcome::ok);
  EXPECT_TRUE(line.lab.core(1).deregister(*line.ends.receiver, line.to));
  line.lab.run_for(1ms);
  EXPECT_EQ(ended(received), Outcome::invalid_usage);
  for (std::size_t i = 0; i < kShort; ++i) {
    ASSERT_EQ(line.in[i], std::byte{0xA5});
  }
}

}  // namespace
}  // namespace weft::testing
