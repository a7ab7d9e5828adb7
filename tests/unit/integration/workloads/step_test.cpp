// Owns the proof that training steps take what computing and network take, and that their faults
// are seen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>

#include "integration/workloads/step_rank.hpp"
#include "integration/workloads/step_report.hpp"
#include "integration/workloads/virtual_run.hpp"
#include "srd/base/rng.hpp"

namespace weft::workloads {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Computing time and gradients of the model, all of them once; each collective is started once and
// waited for once.
TEST(StepPlan, HasAllOfTheModelInIt) {
  for (const TrainingModel& model : training_models()) {
    for (const Parallelism parallelism : {Parallelism::ddp, Parallelism::sharded}) {
      const StepPlan plan = plan_step({.model = model, .parallelism = parallelism});
      EXPECT_NEAR(static_cast<double>(plan.computing().count()),
                  static_cast<double>((model.forward + model.backward).count()), 1e4)
          << model.name;
      Bytes reduced = 0;
      for (const CollectiveSpec& one : plan.collectives) {
        const bool reduces =
            one.kind == CollectiveKind::all_reduce || one.kind == CollectiveKind::reduce_scatter;
        reduced += reduces ? one.bytes : 0;
      }
      EXPECT_NEAR(static_cast<double>(reduced), static_cast<double>(model.parameters * 2), 256)
          << model.name;
      std::vector<int> state(plan.collectives.size());
      for (const PlanItem& item : plan.items) {
        if (item.kind == PlanItem::Kind::start) {
          EXPECT_EQ(state[item.collective]++, 0) << "started once";
        } else if (item.kind == PlanItem::Kind::wait) {
          EXPECT_EQ(state[item.collective]++, 1) << "waited for after its start";
        }
      }
      EXPECT_THAT(state, ::testing::Each(2)) << "nothing is left under way";
    }
  }
}

// All ranks of a collective, with pieces that come in any order.
void expect_collective(const CollectiveSpec& collective, std::uint32_t ranks, std::uint64_t seed) {
  struct Flying {
    std::uint32_t from;
    CollectiveRun::Piece piece;
  };
  Rng rng(seed);
  std::vector<CollectiveRun> runs;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    runs.emplace_back(collective, ranks, rank);
    EXPECT_FALSE(runs.back().next()) << "nobody is ready";
  }
  for (CollectiveRun& run : runs) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      run.ready(rank);
    }
  }
  std::vector<Flying> flying;
  std::vector<Bytes> received(ranks);
  const auto send_all = [&](std::uint32_t rank) {
    while (const auto piece = runs[rank].next()) {
      flying.push_back({rank, *piece});
    }
  };
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    send_all(rank);
  }
  while (!flying.empty()) {
    const std::size_t at = rng.below(static_cast<std::uint32_t>(flying.size()));
    const Flying one = flying[at];
    flying.erase(flying.begin() + static_cast<std::ptrdiff_t>(at));
    ASSERT_TRUE(runs[one.piece.to].arrived(one.from, one.piece.number));
    EXPECT_FALSE(runs[one.piece.to].arrived(one.from, one.piece.number)) << "once is enough";
    received[one.piece.to] += one.piece.bytes;
    send_all(one.piece.to);
  }
  const Bytes part = (collective.bytes + ranks - 1) / ranks;
  const Bytes factor = collective.kind == CollectiveKind::all_reduce ? 2 : 1;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    EXPECT_TRUE(runs[rank].finished()) << rank << " of " << ranks;
    EXPECT_FALSE(runs[rank].missing());
    EXPECT_EQ(received[rank], factor * (ranks - 1) * part) << "as much as the algorithm moves";
  }
}

// Kinds, ranks and sizes around the borders of slices; pieces arrive in a random order, as from a
// network that sprays.
TEST(CollectiveRun, MovesWhatTheAlgorithmMovesInAnyOrder) {
  for (int kind = 0; kind < 4; ++kind) {
    for (const std::uint32_t ranks : {2U, 3U, 4U, 8U}) {
      for (const Bytes bytes : {Bytes{1}, Bytes{4096}, Bytes{3} << 20, (Bytes{40} << 20) + 1}) {
        expect_collective({static_cast<CollectiveKind>(kind), bytes}, ranks, bytes + ranks);
      }
    }
  }
}

// A piece from a wrong rank or of a wrong number would be counted as progress.
TEST(CollectiveRun, RefusesWhatIsNotDue) {
  CollectiveRun run({CollectiveKind::all_reduce, 4096}, 4, 1);
  EXPECT_FALSE(run.arrived(2, 0)) << "the ring goes the other way";
  EXPECT_FALSE(run.arrived(0, 6)) << "there are six rounds";
  EXPECT_EQ(run.missing(), 0U);
}

struct Ran {
  std::unique_ptr<VirtualRun> run;
  std::string error;
  std::vector<std::vector<StepRecord>> records;
  std::vector<const StepRank*> ranks;
};

// All ranks in virtual time. No message may come that no rank expected.
Ran run_steps(
    const StepSetup& setup, VirtualGround ground,
    const std::function<void(StepSetup&)>& change = [](StepSetup&) {}) {
  ground.ranks = setup.ranks;
  ground.mtu = 8256;
  Ran ran;
  auto made = VirtualRun::create(ground);
  EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message);
  ran.run = std::move(*made);
  const auto done = ran.run->run(
      [&](srd::Engine& engine, std::uint32_t rank, RankPlace& place) {
        StepSetup own = setup;
        own.rank = rank;
        own.place = place;
        change(own);
        auto worker = std::make_unique<StepRank>(engine, own);
        place = worker->place();
        return worker;
      },
      false);
  ran.error = done ? "" : done.error().message;
  for (std::uint32_t rank = 0; rank < setup.ranks; ++rank) {
    ran.ranks.push_back(&dynamic_cast<StepRank&>(ran.run->worker(rank)));
    ran.records.push_back(ran.ranks.back()->steps());
    EXPECT_EQ(ran.ranks.back()->stray(), 0U);
  }
  return ran;
}

// One all-reduce that nothing hides: it takes what the links need, and little more.
TEST(StepRank, AnAllReduceTakesWhatTheLinksNeed) {
  StepSetup setup;
  setup.plan.collectives = {{CollectiveKind::all_reduce, Bytes{16} << 20}};
  setup.plan.items = {{PlanItem::Kind::compute, milliseconds{2}, 0},
                      {PlanItem::Kind::start, {}, 0},
                      {PlanItem::Kind::wait, {}, 0}};
  setup.jitter = 0;
  setup.steps = 3;
  const Ran ran = run_steps(setup, {.rate = "100Gbps"});
  EXPECT_EQ(ran.error, "");
  const auto steps = step_times(ran.records);
  ASSERT_EQ(steps.size(), 3U);
  const double least_ms = 1.5 * (16 << 20) * 8 / 100e9 * 1e3;
  for (const StepTime& step : steps) {
    EXPECT_DOUBLE_EQ(step.computing_ms, 2);
    EXPECT_DOUBLE_EQ(step.slowest_ms, 0);
    EXPECT_GT(step.network_ms(), least_ms);
    EXPECT_LT(step.network_ms(), 1.15 * least_ms);
  }
}

TEST(VirtualRun, SaysThatANetworkIsTooSmall) {
  const auto made = VirtualRun::create(
      {.ranks = 16, .topology = "topology: {generator: leaf-spine, hosts: 8, hosts_per_leaf: 4}"});
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().message, HasSubstr("8 NICs, too few for 16 ranks"));
}

// The network is one text that is made of several options; its lines mean nothing to the user.
TEST(VirtualRun, NamesTheOptionThatIsWrong) {
  const auto problem = [](const VirtualGround& ground) {
    const auto made = VirtualRun::create(ground);
    return made ? std::string("none") : made.error().message;
  };
  EXPECT_THAT(problem({.ranks = 2, .rate = "fast"}), StartsWith("--rate fast:"));
  EXPECT_THAT(problem({.ranks = 2, .faults = {"link: '*-*', loss: 0.1", "link: '*-*', loss: 2"}}),
              StartsWith("--fault 'link: '*-*', loss: 2':1: fault.loss: expected a number"));
  EXPECT_THAT(problem({.ranks = 2, .faults = {"link: nowhere, loss: 0.1"}}),
              StartsWith("--fault 'link: nowhere, loss: 0.1': fault 'nowhere': no link is called"));
  EXPECT_THAT(problem({.ranks = 2, .faults = {"link: '*-*'"}}),
              HasSubstr("nothing happens to the link"));
  EXPECT_THAT(problem({.ranks = 2, .seed = ~std::uint64_t{0}}), StartsWith("--seed: "));
  EXPECT_THAT(problem({.ranks = 2,
                       .topology = "topology:\n  generator: leaf-spin\n",
                       .topology_file = "mine.yml"}),
              StartsWith("mine.yml:2: topology.generator: "));
  EXPECT_EQ(problem({.ranks = 2, .faults = {"link: '*-*', loss: 0"}}), "none");
}

// 4 MiB take a fraction of the 5 ms of computing between start and wait.
TEST(StepRank, WhatComputingHidesCostsNothing) {
  StepSetup setup;
  setup.plan.collectives = {{CollectiveKind::all_reduce, Bytes{4} << 20}};
  setup.plan.items = {{PlanItem::Kind::start, {}, 0},
                      {PlanItem::Kind::compute, milliseconds{5}, 0},
                      {PlanItem::Kind::wait, {}, 0}};
  setup.jitter = 0;
  const Ran ran = run_steps(setup, {});
  EXPECT_EQ(ran.error, "");
  EXPECT_LT(summarise(step_times(ran.records)).network, 0.001);
}

// One rank of the ring is slower by half, and all wait for it in each step.
TEST(StepRank, ASlowRankCostsEverybodyItsSlowness) {
  StepSetup setup;
  setup.plan = plan_step({.model = training_models()[0], .scale = 0.05});
  setup.jitter = 0;
  setup.steps = 4;
  const Ran ran =
      run_steps(setup, {}, [](StepSetup& own) { own.slowness = own.rank == 2 ? 1.5 : 1; });
  EXPECT_EQ(ran.error, "");
  const double computing_ms = static_cast<double>(setup.plan.computing().count()) / 1e6;
  for (const StepTime& step : step_times(ran.records)) {
    EXPECT_NEAR(step.computing_ms + step.slowest_ms, 1.5 * computing_ms, 0.01);
    EXPECT_GE(step.all_ms, 1.5 * computing_ms - 0.01);
  }
}

TEST(StepRank, EveryPlanRunsUnderLoss) {
  for (const TrainingModel& model : {training_models().front(), training_models().back()}) {
    for (const Parallelism parallelism : {Parallelism::ddp, Parallelism::sharded}) {
      StepSetup setup;
      setup.plan = plan_step({.model = model, .parallelism = parallelism, .scale = 0.02});
      setup.ranks = 3;
      setup.steps = 2;
      const Ran ran = run_steps(setup, {.faults = {"link: '*-*', loss: 0.005"}});
      EXPECT_EQ(ran.error, "") << model.name;
      EXPECT_EQ(step_times(ran.records).size(), 2U) << model.name;
    }
  }
}

// A link that is gone: the watchdog where the transport is more patient, else the transport.
TEST(StepRank, ALostLinkEndsTheRunAfterItsTime) {
  StepSetup setup;
  setup.plan = plan_step({.model = training_models()[0], .scale = 0.05});
  setup.steps = 50;
  setup.watchdog = milliseconds{100};
  const VirtualGround ground{.faults = {"link: 'host0-*', down: true, at: 4ms"},
                             .peer_timeout = "5s"};
  const Ran ran = run_steps(setup, ground);
  EXPECT_THAT(ran.error, HasSubstr("watchdog"));
  const auto after = ran.ranks[0]->failed_after();
  ASSERT_TRUE(after.has_value());
  EXPECT_GE(*after, milliseconds{100});
  EXPECT_LE(*after, milliseconds{110});
  setup.watchdog = std::chrono::seconds{5};
  VirtualGround impatient = ground;
  impatient.peer_timeout = "50ms";
  const Ran given_up = run_steps(setup, impatient);
  EXPECT_TRUE(std::ranges::any_of(given_up.ranks, [](const StepRank* rank) {
    return rank->failure().find("transport") != std::string::npos &&
           *rank->failed_after() < std::chrono::seconds{1};
  })) << given_up.error;
}

// Two ranks, times by hand: what all computed, what the slowest one computed longer, and the rest,
// which is the network's.
TEST(StepReport, TellsSlownessAndNetworkApart) {
  const auto record = [](int began, int ended, int computed) {
    return StepRecord{milliseconds{began}, milliseconds{ended}, milliseconds{computed}, {}};
  };
  const std::vector<std::vector<StepRecord>> ranks = {
      {record(0, 10, 6), record(10, 21, 5), StepRecord{milliseconds{21}, {}, {}, {}}},
      {record(0, 10, 8), record(10, 21, 5)}};
  const auto steps = step_times(ranks);
  ASSERT_EQ(steps.size(), 2U) << "the third has not ended";
  EXPECT_DOUBLE_EQ(steps[0].computing_ms, 7);
  EXPECT_DOUBLE_EQ(steps[0].slowest_ms, 1);
  EXPECT_DOUBLE_EQ(steps[0].network_ms(), 2);
  EXPECT_DOUBLE_EQ(steps[1].all_ms, 11);
  const StepSummary summary = summarise(steps);
  EXPECT_DOUBLE_EQ(summary.max_ms, 11);
  EXPECT_NEAR(summary.computing, 12.0 / 21, 1e-9);
  EXPECT_NEAR(summary.slowest, 1.0 / 21, 1e-9);
  EXPECT_EQ(step_bars(steps, 11), "▇█");
  const std::vector<StepSeries> all = {{"with <care>", steps, ""}};
  const std::string page = step_page("steps", all);
  EXPECT_THAT(page, HasSubstr("with &lt;care&gt;"));
  EXPECT_EQ(std::count(page.begin(), page.end(), '\n'), 6 + 9);
}

}  // namespace
}  // namespace weft::workloads
