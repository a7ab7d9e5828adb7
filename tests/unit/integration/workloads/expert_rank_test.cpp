// Owns whole rounds of dispatch and combine in virtual time: the rules of order make them right on
// a network without order, and without a rule they are wrong.
#include "integration/workloads/expert_rank.hpp"

#include <gtest/gtest.h>

#include "integration/workloads/virtual_run.hpp"

namespace weft::workloads {
namespace {

// Small, but with several experts on each rank, and several tokens for each of them.
ExpertSetup small_setup() {
  ExpertSetup setup;
  setup.problem = {.ranks = 8, .tokens = 24, .hidden = 1024, .topk = 4, .experts = 32};
  setup.rounds = 4;
  setup.warm_up = 0;
  return setup;
}

struct Outcome {
  ExpertResult all;
  PacketCounters packets;
  std::string error;
};

Outcome run(ExpertSetup setup, VirtualGround ground) {
  ground.ranks = setup.problem.ranks;
  auto made = VirtualRun::create(ground);
  EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message);
  Outcome outcome;
  if (!made) {
    return outcome;
  }
  const auto done = (*made)->run(
      [&](srd::Engine& engine, std::uint32_t rank, RankPlace& place) {
        ExpertSetup own = setup;
        own.rank = rank;
        own.place = place;
        auto worker = std::make_unique<ExpertRank>(engine, own);
        place = worker->place();
        return worker;
      },
      true);
  outcome.error = done ? "" : done.error().message;
  for (std::uint32_t rank = 0; rank < setup.problem.ranks; ++rank) {
    outcome.all.add(dynamic_cast<ExpertRank&>((*made)->worker(rank)).result());
  }
  outcome.packets = (*made)->counters();
  return outcome;
}

TEST(ExpertRank, RulesOfOrderMakeItRightAndNoneDoesNot) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    std::uint64_t digest = 0;
    for (const Ordering ordering :
         {Ordering::count, Ordering::sequence, Ordering::strong, Ordering::none}) {
      ExpertSetup setup = small_setup();
      setup.ordering = ordering;
      setup.problem.seed = seed;
      const Outcome outcome = run(setup, {.faults = {}, .seed = seed});
      const char* const name = kOrderingNames[static_cast<int>(ordering)];
      EXPECT_EQ(outcome.error, "") << name;
      EXPECT_GT(outcome.packets.reordered, 0U) << "a network in order shows nothing";
      EXPECT_EQ(outcome.all.ordering.stray, 0U);
      // 8 ranks, 4 rounds.
      EXPECT_EQ(outcome.all.dispatch_us.size(), 32U);
      if (ordering == Ordering::none) {
        EXPECT_GT(outcome.all.wrong, 0U) << "seed " << seed;
        continue;
      }
      EXPECT_EQ(outcome.all.wrong, 0U) << name << ", seed " << seed;
      // Of each rank's 24 tokens in each round: each of the 4 copies that experts got, and what
      // came back.
      EXPECT_EQ(outcome.all.checked, 4U * 8 * (24 * 4 + 24)) << name;
      EXPECT_TRUE(digest == 0 || digest == outcome.all.digest) << "results depend on the rule";
      digest = outcome.all.digest;
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
    for (const Ordering ordering : {Ordering::count, Ordering::sequence, Ordering::strong}) {
      ExpertSetup setup = small_setup();
      setup.ordering = ordering;
      const Outcome outcome = run(setup, {.faults = faults});
      EXPECT_EQ(outcome.error, "") << faults[0];
      EXPECT_EQ(outcome.all.wrong, 0U)
          << faults[0] << ' ' << kOrderingNames[static_cast<int>(ordering)];
    }
  }
}

TEST(ExpertRank, OtherShapesAreRight) {
  struct Shape {
    std::uint32_t ranks, tokens, hidden, topk, experts;
    double skew;
    Precision precision;
  };
  // The least that there can be, numbers that divide nothing, and experts of which some get most.
  for (const Shape& shape :
       {Shape{2, 1, 128, 1, 2, 0, Precision::fp8}, Shape{3, 7, 256, 6, 6, 0, Precision::bf16},
        Shape{4, 64, 128, 2, 128, 1.5, Precision::fp8},
        Shape{16, 8, 384, 8, 16, 3, Precision::bf16}}) {
    for (const Ordering ordering : {Ordering::count, Ordering::sequence, Ordering::strong}) {
      ExpertSetup setup = small_setup();
      setup.ordering = ordering;
      setup.problem = {shape.ranks,   shape.tokens,    shape.hidden, shape.topk,
                       shape.experts, shape.precision, shape.skew,   9};
      const Outcome outcome = run(setup, {});
      EXPECT_EQ(outcome.error, "") << shape.ranks;
      EXPECT_EQ(outcome.all.wrong, 0U) << shape.ranks << " ranks";
    }
  }
}

TEST(ExpertRank, ADeadRankIsSaid) {
  ExpertSetup setup = small_setup();
  const Outcome outcome = run(setup, {.faults = {"link: 'host4-*', down: true, at: 5us"}});
  EXPECT_NE(outcome.error, "");
}

// The same seed gives the same run, to the nanosecond.
TEST(ExpertRank, SeedsReproduceRuns) {
  const Outcome first = run(small_setup(), {.seed = 4});
  const Outcome again = run(small_setup(), {.seed = 4});
  EXPECT_EQ(first.all.dispatch_us, again.all.dispatch_us);
  EXPECT_EQ(first.all.combine_us, again.all.combine_us);
  EXPECT_EQ(first.all.digest, again.all.digest);
}

}  // namespace
}  // namespace weft::workloads
