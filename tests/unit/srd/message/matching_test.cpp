// Owns the rules by which messages meet receives: tags, masks, sources, order, and a model of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "srd/base/rng.hpp"
#include "tests/support/message_lab.hpp"

namespace weft::testing {
namespace {

using srd::Status;

// The receives are posted the other way round than the messages are sent.
TEST(Matching, TakesTheTagAndNoOther) {
  MessageLab lab(2);
  const std::uint64_t two = lab[1].receive(2, 100);
  const std::uint64_t one = lab[1].receive(1, 100);
  lab[0].send(lab[1], 1, 11);
  lab[0].send(lab[1], 2, 22);
  ASSERT_TRUE(lab.run_until_done());
  EXPECT_EQ(lab[1].result(one)->length, 11U);
  EXPECT_EQ(lab[1].result(two)->length, 22U);
}

TEST(Matching, LooksOnlyAtBitsThatAreNotIgnored) {
  MessageLab lab(2);
  const std::uint64_t family = lab[1].receive(0xAB00, 100, {.ignore = 0xFF});
  const std::uint64_t any = lab[1].receive(0, 100, {.ignore = ~std::uint64_t{0}});
  lab[0].send(lab[1], 0xAC01, 1);
  lab[0].send(lab[1], 0xAB77, 2);
  ASSERT_TRUE(lab.run_until_done());
  EXPECT_EQ(lab[1].result(any)->tag, 0xAC01U);
  EXPECT_EQ(lab[1].result(family)->tag, 0xAB77U);
}

// Though the later one fits better: the order of posting decides, as in MPI.
TEST(Matching, AnEarlierReceiveComesFirst) {
  MessageLab lab(2);
  const std::uint64_t wide = lab[1].receive(0, 100, {.ignore = ~std::uint64_t{0}});
  const std::uint64_t exact = lab[1].receive(5, 100);
  lab[0].send(lab[1], 5, 1);
  lab[0].send(lab[1], 5, 2);
  ASSERT_TRUE(lab.run_until_done());
  EXPECT_EQ(lab[1].result(wide)->length, 1U);
  EXPECT_EQ(lab[1].result(exact)->length, 2U);
}

// A message of another sender goes to the next receive that takes it.
TEST(Matching, CanWaitForOneSender) {
  MessageLab lab(3);
  const std::uint64_t from_two = lab[0].receive(1, 100, {.from = 2});
  const std::uint64_t from_anybody = lab[0].receive(1, 100);
  lab[1].send(lab[0], 1, 11);
  lab.run_for(100us);
  lab[2].send(lab[0], 1, 22);
  ASSERT_TRUE(lab.run_until_done());
  EXPECT_EQ(lab[0].result(from_two)->length, 22U);
  EXPECT_EQ(lab[0].result(from_anybody)->length, 11U);
}

// Small and large messages alternate, the network overtakes, duplicates and loses: the order of
// posting at both ends decides all the same.
TEST(Matching, KeepsTheOrderOfOneSenderOverAnUnorderedNetwork) {
  for (const bool posted_before : {true, false}) {
    MessageLabConfig config = message_lab_config();
    config.link.jitter = 50us;
    config.link.path_skew = 3us;
    config.link.loss = 0.05;
    config.link.duplicate = 0.05;
    config.link.reorder = 0.2;
    config.seed = posted_before ? 11 : 12;
    MessageLab lab(2, config);
    constexpr std::size_t kMessages = 600;
    std::vector<std::uint64_t> receives;
    const auto post = [&] {
      for (std::size_t i = 0; i < kMessages; ++i) {
        receives.push_back(lab[1].receive(7, 4000));
      }
    };
    if (posted_before) {
      post();
    }
    for (std::size_t i = 0; i < kMessages; ++i) {
      lab[0].send(lab[1], 7, i % 7 == 3 ? 3000 + i % 900 : 1 + i, {.seed = 1000 + i});
    }
    if (!posted_before) {
      lab.run_for(5ms);
      post();
    }
    ASSERT_TRUE(lab.run_until_done());
    for (std::size_t i = 0; i < kMessages; ++i) {
      const std::size_t size = i % 7 == 3 ? 3000 + i % 900 : 1 + i;
      ASSERT_EQ(lab[1].status(receives[i]), Status::ok);
      ASSERT_EQ(lab[1].result(receives[i])->length, size) << "message " << i;
      ASSERT_EQ(first_difference(lab[1].memory(receives[i]).first(size), 1000 + i), size);
    }
    EXPECT_GT(lab[1].messenger().counters().out_of_order, 0U) << "the network was too tame";
  }
}

// The network holds the first one back. The second may be delivered before it, because order was
// not asked for.
TEST(Matching, UnorderedMessagesDoNotWaitForEarlierOnes) {
  MessageLabConfig config = message_lab_config();
  config.messenger.order = srd::MessageOrder::unordered;
  MessageLab lab(2, config);
  lab.network().delay_next(world::Packet::send, 300us);
  const std::uint64_t first = lab[1].receive(1, 10);
  const std::uint64_t second = lab[1].receive(1, 10);
  lab[0].send(lab[1], 1, 1);
  lab.run_for(1us);
  lab[0].send(lab[1], 1, 2);
  ASSERT_TRUE(lab.run_until_done());
  EXPECT_EQ(lab[1].result(first)->length, 2U);
  EXPECT_EQ(lab[1].result(second)->length, 1U);
}

// The same with the default order.
TEST(Matching, OrderedOnesDo) {
  MessageLab lab(2);
  lab.network().delay_next(world::Packet::send, 300us);
  const std::uint64_t first = lab[1].receive(1, 10);
  const std::uint64_t second = lab[1].receive(1, 10);
  lab[0].send(lab[1], 1, 1);
  lab.run_for(1us);
  lab[0].send(lab[1], 1, 2);
  ASSERT_TRUE(lab.run_until_done());
  EXPECT_EQ(lab[1].result(first)->length, 1U);
  EXPECT_EQ(lab[1].result(second)->length, 2U);
}

// The cancelled receive ends once, as flushed, and the message goes to the next one.
TEST(Cancel, EndsAPostedReceive) {
  MessageLab lab(2);
  const std::uint64_t unwanted = lab[1].receive(1, 100);
  const std::uint64_t wanted = lab[1].receive(1, 100);
  EXPECT_TRUE(lab[1].messenger().cancel(unwanted));
  EXPECT_FALSE(lab[1].messenger().cancel(unwanted));
  lab[0].send(lab[1], 1, 10);
  ASSERT_TRUE(lab.run_until_done());
  EXPECT_EQ(lab[1].status(unwanted), Status::flushed);
  EXPECT_EQ(lab[1].status(wanted), Status::ok);
}

// A large message is being read: its receive has been matched, and cannot be taken back.
TEST(Cancel, ComesTooLateOnceTheMessageIsHere) {
  MessageLab lab(2);
  const std::uint64_t receive = lab[1].receive(1, 100000);
  lab[0].send(lab[1], 1, 100000, {.seed = 4});
  ASSERT_TRUE(lab.run_until([&] { return lab[1].engine().outstanding() > 0; })) << "no read";
  EXPECT_FALSE(lab[1].messenger().cancel(receive));
  ASSERT_TRUE(lab.run_until_done());
  EXPECT_EQ(lab[1].status(receive), Status::ok);
  EXPECT_EQ(first_difference(lab[1].memory(receive), 4), 100000U);
}

// Wherever the cancellation hits, the message meets the cancelled receive or the next one.
TEST(Cancel, RacesWithTheMessageAndNothingIsLost) {
  for (int at = 0; at < 60; ++at) {
    for (const std::size_t size : {std::size_t{100}, std::size_t{5000}}) {
      MessageLab lab(2);
      const std::uint64_t first = lab[1].receive(1, size);
      lab[0].send(lab[1], 1, size, {.seed = 8});
      lab.run_for(at * 1us);
      const bool cancelled = lab[1].messenger().cancel(first);
      const std::uint64_t second = lab[1].receive(1, size);
      ASSERT_TRUE(lab.run_until([&] {
        return lab[1].result(first) != nullptr && lab[0].sends_open() == 0 &&
               (!cancelled || lab[1].result(second) != nullptr);
      }));
      EXPECT_EQ(lab[1].status(first), cancelled ? Status::flushed : Status::ok);
      const std::uint64_t taken = cancelled ? second : first;
      EXPECT_EQ(lab[1].status(taken), Status::ok);
      EXPECT_EQ(first_difference(lab[1].memory(taken), 8), size);
    }
  }
}

// --- The model: two lists, searched from the front.
struct Model {
  struct Receive {
    std::uint64_t cookie, tag, ignore;
    std::optional<std::uint32_t> from;
  };
  struct Sent {
    std::uint32_t from;
    std::uint64_t tag, number;
  };
  static bool matches(const Receive& receive, const Sent& sent) {
    return ((receive.tag ^ sent.tag) & ~receive.ignore) == 0 &&
           (!receive.from || *receive.from == sent.from);
  }
  void arrive(const Sent& sent) {
    const auto at = std::ranges::find_if(
        posted, [&](const Receive& receive) { return matches(receive, sent); });
    if (at == posted.end()) {
      waiting.push_back(sent);
      return;
    }
    expected[at->cookie] = sent.number;
    posted.erase(at);
  }
  void post(const Receive& receive) {
    const auto at =
        std::ranges::find_if(waiting, [&](const Sent& sent) { return matches(receive, sent); });
    if (at == waiting.end()) {
      posted.push_back(receive);
      return;
    }
    expected[receive.cookie] = at->number;
    waiting.erase(at);
  }
  std::deque<Receive> posted;
  std::deque<Sent> waiting;
  std::map<std::uint64_t, std::uint64_t> expected;  // by receive: number of its message
};

class MatchingModel : public ::testing::TestWithParam<std::uint64_t> {};

// Random sends of two senders, receives and cancellations, each left to arrive before the next one:
// then the model is exact. Sizes cross the border between small and large.
TEST_P(MatchingModel, AgreesOnWhichMessageMeetsWhichReceive) {
  MessageLabConfig config = message_lab_config();
  config.seed = GetParam();
  config.link.jitter = 5us;
  config.messenger.receive_buffers = 8;  // so that waiting messages fill them
  MessageLab lab(3, config);
  Rng rng(GetParam());
  Model model;
  std::uint64_t number = 0;
  for (int step = 0; step < 300; ++step) {
    const auto what = rng.between(0, 9);
    if (what < 5) {
      const auto from = static_cast<std::uint32_t>(rng.between(1, 2));
      const std::uint64_t tag = rng.between(0, 3);
      ++number;
      lab[from].send(lab[0], tag, rng.between(0, 3) == 0 ? 2000 : 50,
                     {.immediate = static_cast<std::uint32_t>(number)});
      lab.run_for(1ms);
      model.arrive({from, tag, number});
    } else if (what < 9) {
      ReceiveOptions options;
      options.ignore = rng.between(0, 3) == 0 ? 1 : 0;
      if (rng.between(0, 1) == 0) {
        options.from = static_cast<std::uint32_t>(rng.between(1, 2));
      }
      const std::uint64_t tag = rng.between(0, 3);
      const std::uint64_t cookie = lab[0].receive(tag, 2000, options);
      model.post({cookie, tag, options.ignore, options.from});
      lab.run_for(1ms);
    } else if (!model.posted.empty()) {
      const std::size_t at = rng.between(0, model.posted.size() - 1);
      EXPECT_TRUE(lab[0].messenger().cancel(model.posted[at].cookie));
      model.posted.erase(model.posted.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  lab.run_for(50ms);
  for (const auto& [cookie, sent] : model.expected) {
    ASSERT_NE(lab[0].result(cookie), nullptr) << "seed " << GetParam();
    EXPECT_EQ(lab[0].result(cookie)->immediate, sent) << "seed " << GetParam();
    EXPECT_EQ(lab[0].status(cookie), Status::ok);
  }
  EXPECT_EQ(lab[0].receives_open(), model.posted.size());
}

INSTANTIATE_TEST_SUITE_P(Seeds, MatchingModel, ::testing::Range<std::uint64_t>(1, 21));

}  // namespace
}  // namespace weft::testing
