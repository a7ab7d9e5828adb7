// Owns the description of a training step as its network sees it: pieces of computing, and the
// collectives that overlap with them or are waited for. It knows neither engines nor time that
// passes, so whatever can run a collective can take it up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/base/time.hpp"
#include "srd/base/units.hpp"

namespace weft::workloads {

// What a model asks of a step. Times are of one GPU.
struct TrainingModel {
  std::string name;
  std::uint64_t parameters = 0;
  std::uint32_t layers = 1;  // equal parts, for sharding
  std::uint32_t bytes_per_gradient = 2;
  Duration forward{};
  Duration backward{};
  std::uint64_t routed_bytes = 0;  // of a layer with experts: that each rank sends in an all-to-all
  std::uint32_t expert_layers = 0;
};
// The models that there are, in order.
[[nodiscard]] const std::vector<TrainingModel>& training_models();

// ddp: gradients are summed by all-reduces of buckets, each as soon as the backward pass is through
// with it. sharded: parameters are gathered layer by layer before they are used, and gradients are
// reduced and scattered.
enum class Parallelism : std::uint8_t { ddp, sharded };

enum class CollectiveKind : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };
inline constexpr const char* kCollectiveNames[] = {"all_reduce", "all_gather", "reduce_scatter",
                                                   "all_to_all"};

struct CollectiveSpec {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Bytes bytes = 0;  // of the larger buffer
};

struct PlanItem {
  // compute: the GPU is busy for `time`. start: a collective joins the queue of those that run
  // beside it, one after the other. wait: until that one has ended.
  enum class Kind : std::uint8_t { compute, start, wait };
  Kind kind = Kind::compute;
  Duration time{};
  std::uint32_t collective = 0;
};

// One step. Every rank does the same; how long its computing takes is its own matter.
struct StepPlan {
  std::vector<CollectiveSpec> collectives;
  std::vector<PlanItem> items;

  [[nodiscard]] Duration computing() const;
  [[nodiscard]] Bytes communicated() const;
};

struct PlanRequest {
  TrainingModel model;
  Parallelism parallelism = Parallelism::ddp;
  Bytes bucket = 25 << 20;  // ddp
  double scale = 1;         // of bytes and times alike
};
[[nodiscard]] StepPlan plan_step(const PlanRequest& request);

}  // namespace weft::workloads
