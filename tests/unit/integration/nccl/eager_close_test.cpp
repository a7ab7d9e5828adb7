// Owns what becomes of eager messages when their connection is closed.
#include <gtest/gtest.h>

#include "tests/unit/integration/nccl/line_lab.hpp"

namespace weft::testing {
namespace {

using nccl::Buffer;
using nccl::Outcome;
using nccl::Request;

constexpr std::size_t kMemory = 1 << 16;

// Its sends have ended, so a sender may close its end and let the memory go.
TEST(NcclEagerClose, WhatWasSentBeforeACloseIsReceivedAfterIt) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    NcclLabConfig config = nccl_lab_config();
    config.seed = seed;
    config.link.reorder = 0.5;
    config.link.jitter = 20us;
    config.link.loss = 0.2;
    Line line(kMemory, config);
    const std::uint32_t count = 1 + static_cast<std::uint32_t>(seed) % nccl::kEagerWindow;
    Request* const early = seed % 2 == 0 ? line.receive(0, kShort, 1) : nullptr;
    for (std::uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(ended(line.send_bytes(kShort, i, i % 3)), Outcome::ok);
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

// It makes no difference on which side of the close the group was posted.
TEST(NcclEagerClose, GroupThatACloseLeavesIncompleteFails) {
  for (const bool before : {true, false}) {
    SCOPED_TRACE(before);
    Line line(kMemory);
    const Buffer buffers[] = {{line.in.data(), kShort, 0, line.in_region},
                              {line.in.data() + kShort, kShort, 0, line.in_region}};
    Request* both = nullptr;
    const auto post = [&] {
      EXPECT_EQ(line.lab.core(1).receive(*line.ends.receiver, buffers, false, both), Outcome::ok);
    };
    if (before) {
      post();
    }
    EXPECT_EQ(ended(line.send_bytes(kShort, 1)), Outcome::ok);
    EXPECT_EQ(ended(line.send_bytes(kShort, 2, 1)), Outcome::ok);
    line.lab.core(0).close(*line.ends.sender);
    line.lab.run_for(1ms);
    if (!before) {
      post();
    }
    EXPECT_EQ(line.outcome(both), Outcome::remote_error);
    EXPECT_EQ(line.outcome(line.receive(0, kShort, 1)), Outcome::ok) << "the other message";
    EXPECT_TRUE(has_bytes(std::span{line.in}.first(kShort), 2));
    EXPECT_EQ(line.outcome(line.receive(0, kShort)), Outcome::remote_error);
  }
}

// The receives of another tag have all slots.
TEST(NcclEagerClose, MessageIsReceivedAfterACloseThoughAllSlotsWereTaken) {
  Line line(kMemory);
  std::vector<Request*> others;
  while (Request* const one = line.receive(0, kShort, 1)) {
    others.push_back(one);
  }
  EXPECT_EQ(others.size(), 64U);
  EXPECT_EQ(ended(line.send_bytes(kShort, 7, 2)), Outcome::ok);
  line.lab.core(0).close(*line.ends.sender);
  line.lab.run_for(1ms);
  for (Request* const one : others) {
    EXPECT_EQ(ended(one), Outcome::remote_error);
  }
  EXPECT_EQ(line.outcome(line.receive(0, kShort, 2)), Outcome::ok);
}

// Slots are used in turn: those of another tag would come too soon.
TEST(NcclEagerClose, MessagesAreReceivedAfterACloseThoughManySlotsWereTaken) {
  Line line(kMemory);
  for (int i = 0; i < 60; ++i) {
    (void)line.receive(0, kShort, 1);
  }
  for (std::uint32_t i = 0; i < 16; ++i) {
    EXPECT_EQ(ended(line.send_bytes(kShort, i, 2)), Outcome::ok);
  }
  line.lab.core(0).close(*line.ends.sender);
  line.lab.run_for(1ms);
  int got = 0;
  for (std::uint32_t i = 0; i < 16; ++i) {
    got += line.outcome(line.receive(0, kShort, 2)) == Outcome::ok ? 1 : 0;
  }
  EXPECT_EQ(got, 16);
}

// The sender has gone in order, and another process has its place.
TEST(NcclEagerClose, MessagesOfAClosedSenderSurviveTheNextLifeOfItsPlace) {
  Line line(kMemory);
  EXPECT_EQ(ended(line.send_bytes(kShort, 7)), Outcome::ok);
  line.lab.core(0).close(*line.ends.sender);
  line.lab.run_for(10ms);
  line.lab.restart(0);
  const auto later = line.lab.connect(0, 1);
  EXPECT_NE(later.sender, nullptr);
  EXPECT_EQ(line.outcome(line.receive(0, kShort)), Outcome::ok);
}

// ... or nobody has, and some other connection with it finds out.
TEST(NcclEagerClose, MessagesOfAClosedSenderSurviveItsProcess) {
  NcclLabConfig config = nccl_lab_config();
  config.engine.peer_timeout = 100ms;
  Line line(kMemory, config);
  const auto other = line.lab.connect(0, 1);
  EXPECT_EQ(ended(line.send_bytes(kShort, 7)), Outcome::ok);
  line.lab.core(0).close(*line.ends.sender);
  line.lab.run_for(10ms);
  line.lab.crash(0);
  nccl::CommRegion* const to =
      *line.lab.core(1).register_memory(*other.receiver, line.in.data(), 64);
  const Buffer buffer{line.in.data(), kShort, 0, to};
  Request* request = nullptr;
  EXPECT_EQ(line.lab.core(1).receive(*other.receiver, {&buffer, 1}, false, request), Outcome::ok);
  EXPECT_EQ(line.outcome(request), Outcome::remote_error);
  EXPECT_EQ(line.outcome(line.receive(0, kShort)), Outcome::ok);
}

// Nothing waits for that memory any more.
TEST(NcclEagerClose, DeregistrationAfterTheSendersCloseIsNoMistakeOfTheReceiver) {
  Line line(kMemory);
  std::vector<std::byte> more(kShort);
  nccl::CommRegion* const second =
      *line.lab.core(1).register_memory(*line.ends.receiver, more.data(), more.size());
  Request* const first = line.receive(0, kShort, 1);
  EXPECT_EQ(ended(line.send_bytes(kShort, 7, 2)), Outcome::ok);
  line.lab.core(0).close(*line.ends.sender);
  EXPECT_EQ(line.outcome(first), Outcome::remote_error);
  EXPECT_TRUE(line.lab.core(1).deregister(*line.ends.receiver, line.in_region));
  const Buffer buffer{more.data(), kShort, 2, second};
  Request* request = nullptr;
  EXPECT_EQ(line.lab.core(1).receive(*line.ends.receiver, {&buffer, 1}, false, request),
            Outcome::ok);
  EXPECT_EQ(ended(request), Outcome::ok);  // what was sent before
  EXPECT_EQ(line.lab.core(1).receive(*line.ends.receiver, {&buffer, 1}, false, request),
            Outcome::ok);
  EXPECT_EQ(ended(request), Outcome::remote_error);
}

}  // namespace
}  // namespace weft::testing
