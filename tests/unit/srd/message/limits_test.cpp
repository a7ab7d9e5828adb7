// Owns the proof that everything is bounded, and that a bound slows down instead of blocking.
//
// A messenger has fixed room: buffers for what nobody has received yet, requests that it holds for
// each sender, posts, completions. Where one of them is full the senders must be slowed down, every
// message must still come in the end, and a hostile peer must not be able to take the room of the
// others.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/support/message_lab.hpp"

namespace weft::testing {
namespace {

using srd::PostResult;
using srd::Status;

// 20 senders flood a receiver that does not receive: it holds what its buffers hold, and requests.
TEST(Limits, AFloodOfUnexpectedMessagesIsHeldBackAtTheSenders) {
  constexpr std::uint32_t kSenders = 20;
  constexpr std::uint64_t kEach = 400;
  MessageLabConfig config = message_lab_config();
  config.messenger.receive_buffers = 32;
  config.messenger.control_buffers = 16;
  MessageLab lab(kSenders + 1, config);
  std::vector<std::uint64_t> sent;
  for (std::uint64_t i = 0; i < kEach; ++i) {
    for (std::uint32_t from = 1; from <= kSenders; ++from) {
      lab[from].send(lab[0], from, 100 + i, {.seed = from * 1000 + i});
    }
  }
  std::size_t most = 0;
  lab.run_until(
      [&] {
        most = std::max(most, lab[0].messenger().unexpected());
        return false;
      },
      20ms);
  EXPECT_GE(most, 32U);
  EXPECT_LE(most, 32U + kSenders * srd::message::kMaxRequestsHeld);
  std::size_t held_back = 0;
  for (std::uint32_t from = 1; from <= kSenders; ++from) {
    held_back += lab[from].sends_open();
  }
  EXPECT_GE(held_back + 32, kSenders * kEach);
  // The receiver asks for the last sender's messages first: the others' cannot be in the way.
  for (std::uint32_t from = kSenders; from >= 1; --from) {
    std::vector<std::uint64_t> receives;
    for (std::uint64_t i = 0; i < kEach; ++i) {
      receives.push_back(lab[0].receive(from, 600));
    }
    ASSERT_TRUE(lab.run_until([&] { return lab[0].receives_open() == 0; }, 2s)) << from;
    for (std::uint64_t i = 0; i < kEach; ++i) {
      ASSERT_EQ(lab[0].status(receives[i]), Status::ok);
      ASSERT_EQ(lab[0].result(receives[i])->length, 100 + i) << "order of sender " << from;
      ASSERT_EQ(first_difference(lab[0].memory(receives[i]).first(100 + i), from * 1000 + i),
                100 + i);
    }
  }
  ASSERT_TRUE(lab.run_until_done());
  EXPECT_EQ(lab[0].messenger().unexpected(), 0U);
}

// With a single buffer two senders are held back all the time, over a network that loses and
// reorders. Slow is right; to stand still would be wrong.
TEST(Limits, OneBufferIsEnough) {
  MessageLabConfig config = message_lab_config();
  config.messenger.receive_buffers = 1;
  config.messenger.control_buffers = 1;
  config.link.loss = 0.02;
  config.link.jitter = 20us;
  config.link.path_skew = 2us;
  MessageLab lab(3, config);
  std::vector<std::uint64_t> receives;
  for (std::size_t i = 0; i < 200; ++i) {
    receives.push_back(lab[0].receive(1, 5000, {.from = 1}));
    lab[1].send(lab[0], 1, i % 5 == 0 ? 4000 + i : i, {.seed = 500 + i});
    lab[0].receive(1, 5000, {.from = 2});
    lab[2].send(lab[0], 1, i);
  }
  ASSERT_TRUE(lab.run_until_done());
  for (std::size_t i = 0; i < 200; ++i) {
    const std::size_t size = i % 5 == 0 ? 4000 + i : i;
    EXPECT_EQ(lab[0].result(receives[i])->length, size);
    EXPECT_EQ(first_difference(lab[0].memory(receives[i]).first(size), 500 + i), size);
  }
}

// Both flood each other and only then receive.
TEST(Limits, MutualFloodsDoNotBlock) {
  MessageLabConfig config = message_lab_config();
  config.messenger.receive_buffers = 4;
  config.messenger.control_buffers = 2;
  config.engine.max_work_requests = 16;
  MessageLab lab(2, config);
  for (int i = 0; i < 300; ++i) {
    lab[0].send(lab[1], 1, i % 4 == 0 ? 3000 : 30);
    lab[1].send(lab[0], 1, i % 4 == 0 ? 3000 : 30);
  }
  lab.run_for(5ms);
  for (int i = 0; i < 300; ++i) {
    lab[0].receive(1, 3000);
    lab[1].receive(1, 3000);
  }
  ASSERT_TRUE(lab.run_until_done());
}

// The refused post gives no completion, and its place is free again when one of the others has
// ended.
TEST(Limits, PostsBeyondTheLimitsAreRefusedWithoutEffect) {
  MessageLabConfig config = message_lab_config();
  config.messenger.max_sends = 3;
  config.messenger.max_receives = 2;
  MessageLab lab(2, config);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(lab[0].try_send(lab[1], 1, 10).has_value());
  }
  EXPECT_FALSE(lab[0].try_send(lab[1], 1, 10).has_value());
  lab[1].receive(1, 10);
  lab[1].receive(1, 10);
  EXPECT_EQ(lab[1].messenger().post_receive({}), PostResult::queue_full);
  ASSERT_TRUE(lab.run_until_done());
  EXPECT_TRUE(lab[0].try_send(lab[1], 1, 10).has_value());
}

// A number of a peer that the engine never gave out.
TEST(Limits, UnknownPeersAreRefused) {
  MessageLab lab(1);
  EXPECT_EQ(lab[0].messenger().post_send({.to = {srd::PeerId{77}, srd::Qpn{8}, 0}}),
            PostResult::no_such_peer);
}

// Silence would make the second sender ask again for ever.
TEST(Limits, ARequestFromOnePartnerTooManyIsAnswered) {
  MessageLabConfig config = message_lab_config();
  config.messenger.max_partners = 1;
  MessageLab lab(3, config);
  lab[1].send(lab[0], 1, 10);
  lab.run_for(1ms);
  const std::uint64_t send = lab[2].send(lab[0], 1, 50000);
  ASSERT_TRUE(lab.run_until([&] { return lab[2].status(send).has_value(); }));
  EXPECT_EQ(lab[2].status(send), Status::receiver_not_ready);
  EXPECT_EQ(lab[0].messenger().counters().refused, 1U);
}

// A user that does not poll is not flooded with completions either.
TEST(Limits, CompletionsThatNobodyTakesStopProgress) {
  MessageLabConfig config = message_lab_config();
  config.messenger.max_completions = 4;
  config.messenger.receive_buffers = 2;
  MessageLab lab(2, config);
  Bytes8 memory(100);
  for (std::uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(lab[1].messenger().post_receive({.data = memory, .cookie = i}), PostResult::accepted);
  }
  for (int i = 0; i < 4; ++i) {
    lab[0].send(lab[1], 0, 10);
  }
  for (int i = 0; i < 100; ++i) {
    lab.world().run_until(lab.world().now() + 100us);
    lab[0].collect();
    lab[1].messenger().progress();
  }
  EXPECT_EQ(lab[1].messenger().post_receive({.data = memory, .cookie = 9}), PostResult::queue_full);
  std::vector<srd::MessageCompletion> done(10);
  EXPECT_EQ(lab[1].messenger().poll(done), 4U);
  EXPECT_EQ(lab[1].messenger().post_receive({.data = memory, .cookie = 9}), PostResult::accepted);
}

// --- Garbage: a peer that can send to the endpoints can send anything.
class Hostile : public ::testing::Test {
 protected:
  Hostile() : lab(2) {
    EXPECT_TRUE(lab[0]
                    .engine()
                    .open_endpoint(srd::Qpn{100}, {.qkey = 0x1CE, .domain = 5, .receive_depth = 1})
                    .has_value());
  }
  // Gives the bytes to an endpoint of station 1 as station 0, but from an endpoint of its own.
  void inject(std::uint32_t endpoint, std::span<std::byte> bytes, std::uint32_t source = 100) {
    srd::SendRequest request;
    request.peer = lab[0].address(lab[1]).peer;
    request.source = srd::Qpn{source};
    request.destination = srd::Qpn{endpoint};
    request.qkey = 0x1CE;
    request.rnr_retry = 0;
    request.segments[0] = {bytes.data(), static_cast<std::uint32_t>(bytes.size())};
    ASSERT_EQ(lab[0].engine().post(request), PostResult::accepted);
    lab.run_for(200us);
  }
  void inject(std::uint32_t endpoint, srd::message::Header header, std::size_t payload = 0) {
    Bytes8 bytes(sizeof header + payload);
    std::memcpy(bytes.data(), &header, sizeof header);
    inject(endpoint, bytes);
  }
  [[nodiscard]] const srd::MessageCounters& counters() { return lab[1].messenger().counters(); }
  MessageLab lab;
};

TEST_F(Hostile, RandomBytesAreDroppedAndCounted) {
  Rng rng(1);
  for (int i = 0; i < 300; ++i) {
    Bytes8 bytes(rng.between(0, 1024));
    for (std::byte& b : bytes) {
      b = static_cast<std::byte>(rng.next());
    }
    inject(8, bytes);
    bytes.resize(rng.between(0, 48));
    inject(9, bytes);
  }
  EXPECT_GE(counters().malformed, 500U);
  EXPECT_EQ(lab[1].messenger().unexpected(), 0U);
}

// Noise is refused by its form. These have the right form and random contents, so they get further:
// as messages out of order, requests for what there is not, answers to nothing.
TEST_F(Hostile, RandomHeadersThatParseHarmNobody) {
  Rng rng(2);
  for (int i = 0; i < 2000; ++i) {
    srd::message::Header header;
    const std::size_t payload = rng.between(0, 3) == 0 ? rng.between(0, 100) : 0;
    header.kind = static_cast<std::uint8_t>(rng.between(1, 3));
    header.flags = static_cast<std::uint8_t>(rng.between(0, 3));
    header.tag = rng.between(0, 3);
    header.source_life = 1;
    header.epoch = static_cast<std::uint32_t>(rng.between(0, 2));
    header.sequence =
        static_cast<std::uint32_t>(rng.between(0, 1) == 0 ? rng.between(0, 300) : rng.next());
    header.length = static_cast<std::uint32_t>(header.kind == 1 ? payload : rng.between(0, 5000));
    header.message = static_cast<std::uint32_t>(rng.next());
    header.region = static_cast<std::uint32_t>(rng.next());
    inject(header.kind == 1 ? 8 : 9, header, header.kind == 1 ? payload : 0);
    if (i % 10 == 0) {
      lab[1].receive(rng.between(0, 3), 100);
    }
  }
  EXPECT_LE(lab[1].messenger().unexpected(), 512U + srd::message::kMaxRequestsHeld);
  // Honest partners are not hurt.
  lab[1].receive(0x77, 100000, {.from = 0});
  const std::uint64_t send = lab[0].send(lab[1], 0x77, 100000);
  ASSERT_TRUE(lab.run_until([&] { return lab[0].status(send).has_value(); }));
  EXPECT_EQ(lab[0].status(send), Status::ok);
}

// A message that is ahead of its order is kept until those before it have come. The window bounds
// how much one peer can make us keep.
TEST_F(Hostile, NumbersBeyondTheWindowAreDropped) {
  srd::message::Header header;
  header.kind = 1;
  header.source_life = 1;
  header.sequence = srd::message::kOrderWindow;
  inject(8, header);
  EXPECT_EQ(counters().out_of_window, 1U);
  header.sequence = srd::message::kOrderWindow - 1;
  inject(8, header);
  inject(8, header);
  EXPECT_EQ(counters().out_of_window, 2U) << "the same number twice";
  EXPECT_EQ(lab[1].messenger().unexpected(), 1U);
}

// An honest sender never has more than kMaxRequestsHeld open; what is beyond that is an attack, and
// not kept.
TEST_F(Hostile, RequestsBeyondWhatASenderMayHaveAreDropped) {
  srd::message::Header header;
  header.kind = 2;
  header.flags = 2;
  header.source_life = 1;
  header.length = 5000;
  Bytes8 bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  for (std::uint32_t i = 0; i < srd::message::kMaxRequestsHeld + 10; ++i) {
    inject(9, bytes);
  }
  EXPECT_EQ(counters().out_of_window, 10U);
}

// An answer counts only if it comes from where the request went: any peer can guess small numbers.
TEST_F(Hostile, AnswersToNothingAreCounted) {
  const std::uint64_t send = lab[1].send(lab[0], 1, 100000);
  lab.run_for(1ms);
  srd::message::Header header;
  header.kind = 3;
  header.source_life = 1;
  for (std::uint32_t number = 0; number < 10; ++number) {
    header.message = number;  // that of the send, too: but it was sent to another endpoint
    inject(9, header);
  }
  EXPECT_EQ(counters().unknown_answer, 10U);
  EXPECT_FALSE(lab[1].status(send).has_value());
}

// Numbers of requests do not come round with the records that they are kept in.
TEST_F(Hostile, AnAnswerOfLongAgoEndsNoOtherMessage) {
  constexpr std::uint64_t kMessages = 4200;
  const srd::MessageAddress fake{lab[1].address(lab[0]).peer, srd::Qpn{99}, 0x1CE};
  // Where it is asked whether it lives, it has never a receive, as a messenger.
  ASSERT_TRUE(lab[0].engine().open_endpoint(srd::Qpn{101}, {.qkey = 0x1CE, .domain = 5}));
  Bytes8 memory(100'000);
  srd::message::Header request;
  const auto send = [&](std::uint64_t cookie) {
    ASSERT_EQ(lab[0].engine().post_receive(
                  srd::Qpn{100},
                  {.segments = {{{reinterpret_cast<std::byte*>(&request), sizeof request}}}}),
              PostResult::accepted);
    ASSERT_EQ(lab[1].messenger().post_send({.to = fake, .data = memory, .cookie = cookie}),
              PostResult::accepted);
    lab.run_for(200us);
  };
  srd::message::Header answer;
  answer.kind = 3;
  answer.source_life = 1;
  std::vector<std::uint32_t> numbers;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_NO_FATAL_FAILURE(send(1));
    numbers.push_back(request.message.value());
    answer.message = request.message;
    answer.epoch = request.epoch;
    inject(9, answer);
    ASSERT_EQ(lab[1].completions().size(), i + 1);
    ASSERT_EQ(lab[1].completions().back().status, Status::ok);
  }
  ASSERT_NO_FATAL_FAILURE(send(2));
  for (const std::uint32_t number : numbers) {
    answer.message = number;
    inject(9, answer);
  }
  EXPECT_EQ(counters().unknown_answer, kMessages);
  EXPECT_EQ(lab[1].completions().size(), kMessages);
  answer.message = request.message;
  inject(9, answer);
  EXPECT_EQ(lab[1].completions().back().cookie, 2U);
}

// 7 is no life that this station ever had.
TEST_F(Hostile, MessagesForAFormerLifeAreDropped) {
  srd::message::Header header;
  header.kind = 1;
  header.source_life = 1;
  header.destination_life = 7;
  inject(8, header);
  EXPECT_EQ(counters().stale, 1U);
  EXPECT_EQ(lab[1].messenger().unexpected(), 0U);
}

// Each mistake is told by its own text; and a failed attempt leaves nothing behind.
TEST(Config, WhatCannotWorkIsSaid) {
  MessageLab lab(1);
  const auto error = [&](srd::MessengerConfig config) {
    const auto made = srd::Messenger::create(lab[0].engine(), config);
    return made ? std::string{} : made.error().message;
  };
  EXPECT_NE(error({.endpoint = srd::Qpn{0xFFFFFE}}).find("24 bits"), std::string::npos);
  EXPECT_NE(error({.endpoint = srd::Qpn{50}, .max_sends = 0}).find("at least 1"),
            std::string::npos);
  EXPECT_NE(error({.endpoint = srd::Qpn{50}, .max_sends = (1U << 24) + 1}).find("max_sends"),
            std::string::npos);
  EXPECT_NE(error({.endpoint = srd::Qpn{6}}).find("open already"), std::string::npos)
      << "6, 7 and 8, which is taken";
  EXPECT_EQ(error({.endpoint = srd::Qpn{5}}), "") << "the failure before left 6 and 7 free";
}

// A message without a posted receive costs a question now and then, and nothing once it is through.
TEST(Limits, AnIdleRequestIsQuiet) {
  MessageLab lab(2);
  for (int i = 0; i < 20; ++i) {
    lab[0].send(lab[1], 7, 100'000);
  }
  lab.run_for(10ms);
  const auto before = lab.network().counts().sent;
  lab.run_for(1s);
  EXPECT_LT(lab.network().counts().sent - before, 2 * 1000U) << "questions and answers, of all 20";
  for (int i = 0; i < 20; ++i) {
    lab[1].receive(7, 100'000);
  }
  ASSERT_TRUE(lab.run_until_done());
  lab.run_for(10ms);
  const auto after = lab.network().counts().sent;
  lab.run_for(1s);
  EXPECT_EQ(lab.network().counts().sent, after);
}

// The engine sees for itself whether the peer that owes it bytes is alive.
TEST(Limits, AReadAsksNobodyElse) {
  MessageLab lab(2);
  std::vector<std::byte> shared(100);
  std::vector<std::byte> local(100);
  const auto key = lab[1].messenger().share(shared, srd::Access::remote_read).value();
  ASSERT_EQ(
      lab[0].messenger().post_read({.from = lab[0].address(lab[1]), .data = local, .key = key}),
      srd::PostResult::accepted);
  lab.run_for(1ms);
  EXPECT_EQ(lab[0].engine().counters().data_pkts, 1U);
}

}  // namespace
}  // namespace weft::testing
