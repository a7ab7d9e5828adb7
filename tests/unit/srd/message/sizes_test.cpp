// Owns the stories of one message: every size, what comes with it, and what does not fit.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/message_lab.hpp"

namespace weft::testing {
namespace {

using srd::MessageCompletion;
using srd::Status;

// What fits into one packet of this laboratory beside the header of a message; larger ones are
// asked for first.
constexpr std::size_t kEager = 1024 - sizeof(srd::message::Header);

class Sizes : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Sizes, ArriveWithEveryByteWhetherExpectedOrNot) {
  const std::size_t size = GetParam();
  for (const bool expected : {true, false}) {
    SCOPED_TRACE(expected ? "expected" : "unexpected");
    MessageLab lab(2);
    std::uint64_t receive = expected ? lab[1].receive(0xFEED, size) : 0;
    const std::uint64_t send = lab[0].send(lab[1], 0xFEED, size, {.immediate = 77, .seed = 9});
    if (!expected) {
      lab.run_for(200us);
      EXPECT_EQ(lab[1].messenger().unexpected(), 1U);
      receive = lab[1].receive(0xFEED, size);
    }
    ASSERT_TRUE(lab.run_until_done());
    EXPECT_EQ(lab[0].status(send), Status::ok);
    const MessageCompletion& got = *lab[1].result(receive);
    EXPECT_EQ(got.status, Status::ok);
    EXPECT_EQ(got.length, size);
    EXPECT_EQ(got.tag, 0xFEEDU);
    EXPECT_TRUE(got.has_immediate);
    EXPECT_EQ(got.immediate, 77U);
    EXPECT_EQ(first_difference(lab[1].memory(receive), 9), size);
    EXPECT_EQ(lab[0].messenger().counters().requests_sent, size > kEager ? 1U : 0U);
    EXPECT_EQ(lab[1].messenger().unexpected(), 0U);
    lab.run_for(10ms);
    EXPECT_EQ(lab[0].messenger().outstanding(), 0U);
    EXPECT_EQ(lab[1].messenger().outstanding(), 0U);
    EXPECT_EQ(lab[0].engine().memory().size(), 0U) << "a region was left behind";
    EXPECT_EQ(lab.network().in_flight(), 0U) << "the peer is watched although nothing is awaited";
  }
}

// Around the borders of an eager message and of a packet; a prime beyond all of them; and 16 MiB.
INSTANTIATE_TEST_SUITE_P(All, Sizes,
                         ::testing::Values(0, 1, 7, kEager - 1, kEager, kEager + 1, 1023, 1024,
                                           1025, 4096, 65536, 1000003, 16U << 20));

TEST(Message, WithoutAnImmediateHasNone) {
  MessageLab lab(2);
  const std::uint64_t receive = lab[1].receive(1, 10);
  lab[0].send(lab[1], 1, 10);
  ASSERT_TRUE(lab.run_until_done());
  EXPECT_FALSE(lab[1].result(receive)->has_immediate);
}

// The completion has all that an answer needs; nothing was exchanged beforehand.
TEST(Message, NamesItsSenderSoThatItCanBeAnswered) {
  MessageLab lab(2);
  const std::uint64_t question = lab[1].receive(1, 10);
  lab[0].send(lab[1], 1, 10);
  ASSERT_TRUE(lab.run_until_done());
  const std::uint64_t answer = lab[0].receive(2, 10);
  const std::string text = "an answer";
  ASSERT_EQ(lab[1].messenger().post_send({.to = lab[1].result(question)->peer,
                                          .data = std::as_bytes(std::span{text}),
                                          .tag = 2,
                                          .cookie = 45}),
            srd::PostResult::accepted);
  ASSERT_TRUE(lab.run_until([&] { return lab[0].result(answer) != nullptr; }));
  EXPECT_EQ(lab[0].result(answer)->length, text.size());
}

class Truncation : public ::testing::TestWithParam<std::size_t> {};

// The guard behind each receive is checked by the laboratory.
TEST_P(Truncation, IsAnErrorOfTheReceiverWithoutOverrun) {
  const std::size_t room = GetParam();
  for (const std::size_t size : {std::size_t{900}, std::size_t{20000}}) {
    MessageLab lab(2);
    const std::uint64_t receive = lab[1].receive(1, room);
    const std::uint64_t send = lab[0].send(lab[1], 1, size, {.seed = 3});
    ASSERT_TRUE(lab.run_until_done());
    EXPECT_EQ(lab[1].status(receive), Status::length_error);
    EXPECT_EQ(lab[1].result(receive)->length, size) << "tells how much room it takes";
    EXPECT_EQ(first_difference(lab[1].memory(receive), 3), room);
    EXPECT_EQ(lab[0].status(send), Status::ok) << "the sender has done its part";
    EXPECT_EQ(lab[1].messenger().counters().truncated, 1U);
    // Nothing is broken by it.
    lab[1].receive(2, size);
    lab[0].send(lab[1], 2, size);
    EXPECT_TRUE(lab.run_until_done());
  }
}

INSTANTIATE_TEST_SUITE_P(All, Truncation, ::testing::Values(0, 1, 899));

// The sender took 3000 bytes for eager, and learns that they do not fit into the other end's
// buffers: it has to ask first after all.
TEST(Message, FitsAReceiverWithShorterPackets) {
  MessageLabConfig config = message_lab_config();
  config.engine.mtu_payload = 4096;
  MessageLab lab(2, config);
  config.engine.mtu_payload = 512;
  // Station 2 of another laboratory cannot be reached: so restart one with other packets.
  lab.crash(lab[1]);
  lab.world().start(1, config.engine);
  auto shorter = srd::Messenger::create(lab.world().engine(1), config.messenger).value();
  const std::uint64_t send = lab[0].send(lab[1], 1, 3000, {.seed = 5});
  Bytes8 memory(3000);
  ASSERT_EQ(shorter->post_receive({.data = memory, .tag = 1, .cookie = 1}),
            srd::PostResult::accepted);
  srd::MessageCompletion done;
  bool received = false;
  ASSERT_TRUE(lab.run_until([&] {
    shorter->progress();
    received |= shorter->poll({&done, 1}) == 1;
    return received && lab[0].result(send) != nullptr;
  }));
  EXPECT_EQ(done.status, Status::ok);
  EXPECT_EQ(first_difference(memory, 5), 3000U);
  EXPECT_EQ(lab[0].messenger().counters().converted, 1U);
}

// The lengths of the protocol have 32 bits and an engine refuses more than kMaxTransfer. The memory
// is not touched, so one byte is enough.
TEST(Message, LongerThanAGigabyteIsRefused) {
  MessageLab lab(2);
  std::byte one{};
  const std::span<std::byte> too_long{&one, std::size_t{srd::kMaxTransfer} + 1};
  EXPECT_EQ(lab[0].messenger().post_send({.to = lab[0].address(lab[1]), .data = too_long}),
            srd::PostResult::too_long);
  EXPECT_EQ(lab[0].messenger().post_receive({.data = too_long}), srd::PostResult::too_long);
  EXPECT_EQ(lab[0].messenger().outstanding(), 0U);
}

}  // namespace
}  // namespace weft::testing
