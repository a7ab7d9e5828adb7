// Owns a rank of a training run: it computes, that is, lets time pass, and carries out collectives
// beside that.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "integration/workloads/collective_run.hpp"
#include "integration/workloads/outbox.hpp"
#include "integration/workloads/step_plan.hpp"
#include "integration/workloads/worker.hpp"
#include "srd/base/ring_queue.hpp"

namespace weft::workloads {

struct StepSetup {
  StepPlan plan;
  std::uint32_t ranks = 4;
  std::uint32_t rank = 0;
  std::uint32_t steps = 20;
  std::uint64_t seed = 1;
  double jitter = 0.02;  // deviation of the logarithm of computing time, of each rank and step
  double slowness = 1;   // this rank computes so much longer
  Duration watchdog = std::chrono::seconds{10};  // a collective that takes longer ends the run
  RankPlace place;
};

// What happened in one step of one rank. Times are from the beginning of the run.
struct StepRecord {
  Duration began{};
  Duration ended{};
  Duration computed{};
  Duration waited{};  // of the GPU, for collectives
};

// A collective, from its turn to its end, for pictures.
struct CollectiveRecord {
  std::uint32_t step = 0;
  std::uint32_t collective = 0;
  Duration began{};
  Duration ended{};
};

// A run has a single section: all steps. Ranks are not synchronised between steps except by their
// collectives, so a slow rank shows as the others' waiting.
class StepRank final : public Worker {
 public:
  StepRank(srd::Engine& engine, const StepSetup& setup);

  [[nodiscard]] const RankPlace& place() const { return setup_.place; }
  void meet(std::span<const RankPlace> places) override { outbox_.meet(places, setup_.rank); }
  void prepare() override {}
  void begin(TimePoint now) override;
  void progress(TimePoint now) override;
  [[nodiscard]] TimePoint next_timeout() const override;
  [[nodiscard]] bool section_over() const override {
    return has_begun_ && step_ == setup_.steps && outstanding_ == 0;
  }
  [[nodiscard]] bool finished() const override { return has_begun_; }
  [[nodiscard]] const std::string& failure() const override { return failure_; }

  [[nodiscard]] const std::vector<StepRecord>& steps() const { return records_; }
  [[nodiscard]] const std::vector<CollectiveRecord>& collectives() const { return collectives_; }
  // From the beginning of the run to failure().
  [[nodiscard]] std::optional<Duration> failed_after() const { return failed_after_; }
  [[nodiscard]] std::uint64_t stray() const { return stray_; }

 private:
  // Numbers count through all steps.
  struct Queued {
    std::uint32_t step = 0;
    std::uint32_t collective = 0;
  };

  void go_on(TimePoint now);
  [[nodiscard]] bool do_item(TimePoint now, const PlanItem& item);
  void begin_step(TimePoint now);
  void begin_collective(TimePoint now);
  void end_collective(TimePoint now);
  void post_pieces();
  void on_completion(TimePoint now, const srd::Completion& completion);
  void fail(TimePoint now, const std::string& why);
  [[nodiscard]] double jitter_of(std::uint32_t step) const;

  srd::Engine& engine_;
  StepSetup setup_;
  Outbox outbox_;
  std::string failure_;
  std::optional<Duration> failed_after_;
  bool has_begun_ = false;
  TimePoint run_began_{};

  std::uint32_t step_ = 0;
  std::size_t item_ = 0;
  double stretch_ = 1;  // of this step's computing
  TimePoint computes_until_ = kNever;
  TimePoint waits_since_ = kNever;

  RingQueue<Queued> queue_;  // of collectives; the first one is under way
  std::optional<CollectiveRun> running_;
  std::optional<CollectiveRun::Piece> refused_;  // by an engine that was full
  RingQueue<std::uint32_t> greetings_;           // ranks to be told that this one is ready
  TimePoint collective_began_{};
  std::uint32_t begun_collectives_ = 0;  // number of the one under way, plus one
  std::uint32_t ended_collectives_ = 0;
  std::uint64_t outstanding_ = 0;
  // What came for the next collective before this rank had begun it: only that others are ready.
  std::vector<std::uint32_t> ready_for_next_;
  std::uint64_t stray_ = 0;

  std::vector<StepRecord> records_;
  std::vector<CollectiveRecord> collectives_;
};

}  // namespace weft::workloads
