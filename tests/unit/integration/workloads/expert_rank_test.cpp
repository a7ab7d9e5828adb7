// Owns whole rounds of dispatch and combine in virtual time, both ways: the rules of order make
// them right on a network without order, and without a rule they are wrong.
#include "integration/workloads/expert_rank.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "integration/workloads/virtual_run.hpp"
#include "srd/base/rng.hpp"

namespace weft::workloads {
namespace {

constexpr ExpertMode kModes[] = {ExpertMode::low_latency, ExpertMode::normal};

std::string name_of(const ExpertSetup& setup) {
  return std::string(kExpertModeNames[static_cast<int>(setup.mode)]) + ", " +
         kOrderingNames[static_cast<int>(setup.ordering)];
}

// Small, but with several experts on each rank, and several tokens for each of them. Rings are so
// small that each place is used again in each section.
ExpertSetup small_setup(ExpertMode mode, Ordering ordering = Ordering::count) {
  ExpertSetup setup;
  setup.mode = mode;
  setup.ordering = ordering;
  setup.chunk = 2;
  setup.ring = 6;
  setup.problem = {.ranks = 8, .tokens = 24, .hidden = 1024, .topk = 4, .experts = 32};
  setup.rounds = 4;
  setup.warm_up = 0;
  return setup;
}

// Of all ranks and rounds, those that stay where they are among them.
std::uint64_t messages_of(const ExpertSetup& setup) {
  const ExpertProblem& problem = setup.problem;
  const Router router(problem);
  std::uint64_t messages = 0;
  for (std::uint32_t rank = 0; rank < problem.ranks; ++rank) {
    for (std::uint32_t round = 0; round < setup.rounds; ++round) {
      const std::vector<Selection> route = router.route(rank, round);
      for (std::size_t first = 0; first < route.size(); first += problem.topk) {
        std::set<std::uint32_t> owners;
        for (std::uint32_t i = 0; i < problem.topk; ++i) {
          owners.insert(problem.owner_of(route[first + i].expert));
        }
        messages += setup.mode == ExpertMode::normal ? owners.size() : problem.topk;
      }
    }
  }
  return messages;
}

struct Outcome {
  ExpertResult all;
  PacketCounters packets;
  std::string error;
};

// What went wrong, or nothing.
std::string run_all(VirtualRun& ranks, const ExpertSetup& setup) {
  const auto done = ranks.run(
      [&](srd::Engine& engine, std::uint32_t rank, RankPlace& place) {
        ExpertSetup own = setup;
        own.rank = rank;
        own.place = place;
        auto worker = ExpertRank::make(engine, own);
        place = worker->place();
        return worker;
      },
      true);
  return done ? "" : done.error().message;
}

Outcome run(ExpertSetup setup, VirtualGround ground) {
  ground.ranks = setup.problem.ranks;
  auto made = VirtualRun::create(ground);
  EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message);
  Outcome outcome;
  if (!made) {
    return outcome;
  }
  outcome.error = run_all(**made, setup);
  for (std::uint32_t rank = 0; rank < setup.problem.ranks; ++rank) {
    outcome.all.add(dynamic_cast<ExpertRank&>((*made)->worker(rank)).result());
  }
  outcome.packets = (*made)->counters();
  return outcome;
}

TEST(ExpertRank, RulesOfOrderMakeItRightAndNoneDoesNot) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    std::uint64_t digest = 0;
    for (const ExpertMode mode : kModes) {
      for (const Ordering ordering :
           {Ordering::count, Ordering::sequence, Ordering::strong, Ordering::none}) {
        ExpertSetup setup = small_setup(mode, ordering);
        setup.problem.seed = seed;
        SCOPED_TRACE(name_of(setup) + ", seed " + std::to_string(seed));
        const Outcome outcome = run(setup, {.faults = {}, .seed = seed});
        EXPECT_EQ(outcome.error, "");
        EXPECT_GT(outcome.packets.reordered, 0U) << "a network in order shows nothing";
        EXPECT_EQ(outcome.all.ordering.stray, 0U);
        // 8 ranks, 4 rounds.
        EXPECT_EQ(outcome.all.dispatch_us.size(), 32U);
        EXPECT_EQ(outcome.all.combine_us.size(), 32U);
        EXPECT_LE(outcome.all.wrong, outcome.all.checked);
        if (ordering == Ordering::none) {
          EXPECT_GT(outcome.all.wrong_sums, 0U);
          EXPECT_GT(outcome.all.wrong, outcome.all.wrong_sums) << "and messages";
          continue;
        }
        EXPECT_EQ(outcome.all.wrong, 0U);
        if (ordering != Ordering::strong) {
          EXPECT_GT(outcome.all.ordering.deepest, 0U);
          EXPECT_GE(outcome.all.ordering.held, outcome.all.ordering.deepest);
        }
        EXPECT_EQ(outcome.all.checked, messages_of(setup) + 4U * 8 * 24);
        EXPECT_TRUE(digest == 0 || digest == outcome.all.digest)
            << "results depend on the rule or on the way";
        digest = outcome.all.digest;
      }
    }
  }
}

TEST(ExpertRank, IsRightUnderLossCorruptionSlowAndDyingLinks) {
  const std::vector<std::vector<std::string>> troubles = {
      {"link: '*-*', loss: 0.01"},
      {"link: '*-*', corruption: 0.005"},
      {"link: 'tor0->spine*', rate_factor: 0.1, share: 0.25"},
      {"link: 'tor0->spine*', down: true, share: 0.25, at: 20us"},
      {"link: '*-*', duplication: 0.02, reordering: 0.1, reorder_delay: 30us"}};
  for (const auto& faults : troubles) {
    for (const ExpertMode mode : kModes) {
      for (const Ordering ordering : {Ordering::count, Ordering::sequence, Ordering::strong}) {
        const ExpertSetup setup = small_setup(mode, ordering);
        SCOPED_TRACE(name_of(setup) + ", " + faults[0]);
        const Outcome outcome = run(setup, {.faults = faults});
        EXPECT_EQ(outcome.error, "");
        EXPECT_EQ(outcome.all.wrong, 0U);
        EXPECT_EQ(outcome.all.ordering.stray, 0U);
      }
    }
  }
}

TEST(ExpertRank, OtherShapesAreRight) {
  struct Shape {
    std::uint32_t ranks, tokens, hidden, topk, experts;
    double skew;
    Precision precision;
    std::uint32_t groups, chunk, ring;
    std::uint32_t rounds = 4;
  };
  // The least that there can be, numbers that divide nothing, experts of which some get most, and
  // ranks that get nothing.
  for (const Shape& shape : {Shape{2, 1, 128, 1, 2, 0, Precision::fp8, 0, 1, 1},
                             Shape{3, 7, 256, 6, 6, 0, Precision::bf16, 0, 3, 3},
                             Shape{4, 64, 128, 2, 128, 1.5, Precision::fp8, 1, 5, 40},
                             Shape{2, 5, 256, 16, 32, 0, Precision::bf16, 1, 2, 4},
                             // More chunks than `sequence` has numbers for.
                             Shape{2, 400, 128, 2, 16, 0, Precision::fp8, 0, 1, 64},
                             // All that is to come is there when the section begins.
                             Shape{4, 1, 128, 1, 4, 0, Precision::fp8, 0, 1, 1, 100},
                             Shape{4, 300, 128, 3, 128, 0, Precision::fp8, 2, 1, 16},
                             Shape{16, 8, 384, 8, 16, 3, Precision::bf16, 0, 4, 4}}) {
    for (const ExpertMode mode : kModes) {
      for (const Ordering ordering : {Ordering::count, Ordering::sequence, Ordering::strong}) {
        ExpertSetup setup = small_setup(mode, ordering);
        setup.problem = {shape.ranks,   shape.tokens,    shape.hidden, shape.topk,
                         shape.experts, shape.precision, shape.skew,   9,
                         shape.groups};
        setup.chunk = shape.chunk;
        setup.ring = shape.ring;
        setup.rounds = shape.rounds;
        SCOPED_TRACE(name_of(setup) + ", " + std::to_string(shape.ranks) + " ranks");
        EXPECT_EQ(mistake_in(setup), "");
        const Outcome outcome = run(setup, {});
        EXPECT_EQ(outcome.error, "");
        EXPECT_EQ(outcome.all.wrong, 0U);
        EXPECT_EQ(outcome.all.ordering.stray, 0U);
      }
    }
  }
}

// A token that has several experts on a rank goes there once, and one sum comes back.
TEST(ExpertRank, TheNormalWaySendsATokenOnceToEachRank) {
  ExpertSetup setup = small_setup(ExpertMode::normal);
  setup.problem = {.ranks = 4, .tokens = 40, .hidden = 1024, .topk = 8, .experts = 32};
  setup.problem.groups = 2;
  const Outcome normal = run(setup, {});
  EXPECT_EQ(normal.all.checked, messages_of(setup) + 4U * 4 * 40);
  EXPECT_EQ(normal.all.dispatch_bytes, messages_of(setup) * (16 + 8 * 8 + 1024 + 1024 / 128 * 4));
  EXPECT_EQ(normal.all.combine_bytes, messages_of(setup) * (2 * 1024));
  EXPECT_LE(messages_of(setup), 2U * 4 * 4 * 40);
  setup.mode = ExpertMode::low_latency;
  EXPECT_EQ(run(setup, {}).all.digest, normal.all.digest);
}

// A rank in whose window somebody changes bytes.
class DisturbedRank final : public Worker {
 public:
  DisturbedRank(std::unique_ptr<ExpertRank> rank, std::size_t from, std::size_t to)
      : rank_(std::move(rank)), from_(from), size_(to - from), rng_(rank_->place().base) {}

  [[nodiscard]] const ExpertRank& rank() const { return *rank_; }
  void meet(std::span<const RankPlace> places) override { rank_->meet(places); }
  void prepare() override { rank_->prepare(); }
  void begin(TimePoint now) override { rank_->begin(now); }
  void progress(TimePoint now) override {
    auto* const window = reinterpret_cast<std::byte*>(rank_->place().base);
    window[from_ + rng_.below(static_cast<std::uint32_t>(size_))] ^= std::byte{0x40};
    rank_->progress(now);
  }
  [[nodiscard]] bool section_over() const override { return rank_->section_over(); }
  [[nodiscard]] bool finished() const override { return rank_->finished(); }
  [[nodiscard]] const std::string& failure() const override { return rank_->failure(); }

 private:
  std::unique_ptr<ExpertRank> rank_;
  std::size_t from_;
  std::size_t size_;
  Rng rng_;
};

// In each direction alone.
TEST(ExpertRank, EveryByteIsChecked) {
  for (const ExpertMode mode : kModes) {
    const ExpertSetup setup = small_setup(mode);
    const std::size_t payload = 1024 + 1024 / 128 * 4;
    const std::size_t begin_of_results = mode == ExpertMode::normal
                                             ? std::size_t{8} * 6 * (16 + 4 * 8 + payload)
                                             : std::size_t{2} * 32 * 24 * (16 + payload);
    const std::size_t end =
        begin_of_results +
        (mode == ExpertMode::normal ? std::size_t{8} * 6 * 2048 : std::size_t{2} * 24 * 4 * 2048);
    for (const bool results : {false, true}) {
      SCOPED_TRACE(name_of(setup) + (results ? ", results" : ", tokens"));
      auto run = VirtualRun::create({.ranks = 8});
      ASSERT_TRUE(run.has_value());
      const auto done = (*run)->run(
          [&](srd::Engine& engine, std::uint32_t rank, RankPlace& place) {
            ExpertSetup own = setup;
            own.rank = rank;
            own.place = place;
            auto worker = ExpertRank::make(engine, own);
            place = worker->place();
            return std::make_unique<DisturbedRank>(std::move(worker),
                                                   results ? begin_of_results : 0,
                                                   results ? end : begin_of_results);
          },
          true);
      EXPECT_TRUE(done.has_value()) << done.error().message;
      ExpertResult all;
      for (std::uint32_t rank = 0; rank < 8; ++rank) {
        all.add(dynamic_cast<DisturbedRank&>((*run)->worker(rank)).rank().result());
      }
      EXPECT_GT(all.wrong_sums, 0U);
      // A message is of one token, so there are as many wrong ones as wrong sums that come of them.
      const std::uint64_t wrong_messages = all.wrong - all.wrong_sums;
      EXPECT_GE(wrong_messages, results ? 0 : all.wrong_sums);
      EXPECT_TRUE(!results || wrong_messages == 0);
      EXPECT_LT(all.wrong, all.checked);
    }
  }
}

// The window is for what others write. Copying a rank's own tokens through it, too, would cost time
// in which the others wait.
TEST(ExpertRank, ARanksOwnTokensDoNotPassItsWindow) {
  const ExpertSetup setup = small_setup(ExpertMode::low_latency);
  auto run = VirtualRun::create({.ranks = 8});
  ASSERT_TRUE(run.has_value());
  ASSERT_EQ(run_all(**run, setup), "");
  // [buffer][expert of the rank][source][slot]
  const std::size_t slots = std::size_t{24} * (16 + 1024 + 1024 / 128 * 4);
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    const auto& one = dynamic_cast<ExpertRank&>((*run)->worker(rank));
    EXPECT_EQ(one.result().wrong, 0U);
    const auto* const window = reinterpret_cast<const std::byte*>(one.place().base);
    for (std::uint32_t group = 0; group < 2 * 32; ++group) {
      const std::span<const std::byte> place(window + group * slots, slots);
      const bool is_empty = std::all_of(place.begin(), place.end(),
                                        [](std::byte byte) { return byte == std::byte{0}; });
      EXPECT_EQ(is_empty, group % 8 == rank) << "rank " << rank << ", group " << group;
    }
  }
}

// A run must not see the bytes that one before it has left in the same memory.
TEST(ExpertRank, RunsDoNotSeeEachOthersMemory) {
  for (const ExpertMode mode : kModes) {
    ExpertSetup setup = small_setup(mode, Ordering::none);
    setup.rounds = 1;
    setup.ring = 64;
    const Outcome alone = run(setup, {});
    setup.ordering = Ordering::count;
    EXPECT_EQ(run(setup, {}).all.wrong, 0U);
    setup.ordering = Ordering::none;
    const Outcome after = run(setup, {});
    EXPECT_GT(alone.all.wrong, 0U);
    EXPECT_EQ(after.all.wrong, alone.all.wrong);
    EXPECT_EQ(after.all.digest, alone.all.digest);
  }
}

TEST(ExpertRank, RoundsOfTheWarmUpAreCheckedAndDoNotCount) {
  for (const ExpertMode mode : kModes) {
    ExpertSetup setup = small_setup(mode);
    const Outcome all = run(setup, {});
    setup.warm_up = 1;
    setup.rounds = 3;
    const Outcome warm = run(setup, {});
    EXPECT_EQ(warm.all.dispatch_us.size(), 24U);
    EXPECT_EQ(warm.all.combine_us.size(), 24U);
    EXPECT_EQ(warm.all.checked, all.all.checked);
    EXPECT_EQ(warm.all.digest, all.all.digest);
    EXPECT_LT(warm.all.dispatch_bytes, all.all.dispatch_bytes);
  }
}

TEST(ExpertResult, AddsUpAllOfSeveralRanks) {
  ExpertResult one;
  one.dispatch_us = {1, 2};
  one.combine_us = {3};
  one.dispatch_bytes = 4;
  one.combine_bytes = 5;
  one.checked = 6;
  one.wrong = 7;
  one.wrong_sums = 8;
  one.ordering = {.counters = 9, .held = 10, .deepest = 11, .stray = 12};
  one.digest = 13;
  ExpertResult sum;
  sum.add(one);
  const std::uint64_t first = sum.digest;
  sum.add(one);
  EXPECT_EQ(sum.dispatch_us, (std::vector<double>{1, 2, 1, 2}));
  EXPECT_EQ(sum.combine_us, (std::vector<double>{3, 3}));
  EXPECT_EQ(sum.dispatch_bytes, 8U);
  EXPECT_EQ(sum.combine_bytes, 10U);
  EXPECT_EQ(sum.checked, 12U);
  EXPECT_EQ(sum.wrong, 14U);
  EXPECT_EQ(sum.wrong_sums, 16U);
  EXPECT_EQ(sum.ordering.counters, 18U);
  EXPECT_EQ(sum.ordering.held, 20U);
  EXPECT_EQ(sum.ordering.deepest, 11U) << "of one rank";
  EXPECT_EQ(sum.ordering.stray, 24U);
  EXPECT_NE(sum.digest, 0U) << "two alike ranks are not none";
  EXPECT_NE(sum.digest, first);
}

TEST(ExpertRank, RingsAreWholeChunks) {
  ExpertSetup setup = small_setup(ExpertMode::normal);
  EXPECT_EQ(mistake_in(setup), "");
  setup.chunk = 4;
  EXPECT_EQ(mistake_in(setup), "a ring of 6 tokens is no whole number of chunks of 4");
  setup.chunk = 8;
  EXPECT_EQ(mistake_in(setup), "a ring of 6 tokens is no whole number of chunks of 8");
  setup.mode = ExpertMode::low_latency;
  EXPECT_EQ(mistake_in(setup), "") << "it has no rings";
  setup.mode = ExpertMode::normal;
  setup.chunk = 0;
  EXPECT_EQ(mistake_in(setup), "a ring of 6 tokens is no whole number of chunks of 0");
  setup.chunk = 1;
  setup.ring = 1023;
  EXPECT_EQ(mistake_in(setup), "a ring can have 1022 chunks at most, not 1023");
}

TEST(ExpertRank, CountersNameSoManyExperts) {
  ExpertSetup setup = small_setup(ExpertMode::low_latency);
  setup.problem.experts = 8 * 1025;
  EXPECT_EQ(mistake_in(setup),
            "a rank can have 1024 experts at most, which is what a counter can name");
  setup.mode = ExpertMode::normal;
  EXPECT_EQ(mistake_in(setup), "") << "its counters name places";
}

// More than is free on any laptop has to be foreseen, and a default must not be refused.
TEST(ExpertRank, MemoryIsForeseen) {
  for (const ExpertMode mode : kModes) {
    ExpertSetup setup;
    setup.mode = mode;
    EXPECT_LT(memory_needed(setup), 2'000'000'000U);
    setup.problem.ranks = 64;
    setup.problem.tokens = 4096;
    EXPECT_GT(memory_needed(setup), 30'000'000'000U);
  }
}

TEST(ExpertRank, ADeadRankIsSaid) {
  for (const ExpertMode mode : kModes) {
    const Outcome outcome =
        run(small_setup(mode), {.faults = {"link: 'host4-*', down: true, at: 5us"}});
    EXPECT_THAT(outcome.error, ::testing::HasSubstr("does not answer: unresponsive"));
  }
}

// The same seed gives the same run, to the nanosecond.
TEST(ExpertRank, SeedsReproduceRuns) {
  for (const ExpertMode mode : kModes) {
    const Outcome first = run(small_setup(mode), {.seed = 4});
    const Outcome again = run(small_setup(mode), {.seed = 4});
    EXPECT_EQ(first.all.dispatch_us, again.all.dispatch_us);
    EXPECT_EQ(first.all.combine_us, again.all.combine_us);
    EXPECT_EQ(first.all.digest, again.all.digest);
  }
}

}  // namespace
}  // namespace weft::workloads
