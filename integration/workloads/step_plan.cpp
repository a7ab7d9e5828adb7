// Owns making plans of steps: how data-parallel training overlaps computing and communication, as
// PyTorch's DDP and FSDP do it.
#include "integration/workloads/step_plan.hpp"

#include <algorithm>

namespace weft::workloads {
namespace {

constexpr Bytes kFirstBucket = 1 << 20;  // small, so that sums begin early in the backward pass

// Puts items into a plan, and scales bytes and times on the way.
class Planner {
 public:
  explicit Planner(const PlanRequest& request) : request_(request) {}

  void compute(Duration time, double share) {
    const double scaled = static_cast<double>(time.count()) * share * request_.scale;
    plan.items.push_back({PlanItem::Kind::compute, Duration{static_cast<std::int64_t>(scaled)}, 0});
  }
  std::uint32_t start(CollectiveKind kind, Bytes bytes) {
    const auto scaled = static_cast<Bytes>(static_cast<double>(bytes) * request_.scale);
    plan.collectives.push_back({kind, std::max<Bytes>(scaled, 1)});
    const auto number = static_cast<std::uint32_t>(plan.collectives.size() - 1);
    plan.items.push_back({PlanItem::Kind::start, {}, number});
    return number;
  }
  void wait(std::uint32_t number) { plan.items.push_back({PlanItem::Kind::wait, {}, number}); }
  // Tokens go to their experts, and come back: nothing can be computed meanwhile.
  void route(Duration time, double share) {
    for (int way = 0; way < 2; ++way) {
      wait(start(CollectiveKind::all_to_all, request_.model.routed_bytes));
      compute(time, share / 2);
    }
  }

  StepPlan plan;

 private:
  const PlanRequest& request_;
};

// A pass with its layers of experts, or without any one piece of computing.
void pass(Planner& planner, const TrainingModel& model, Duration time, double share) {
  if (model.expert_layers == 0) {
    planner.compute(time, share);
    return;
  }
  const double each = share / model.expert_layers;
  for (std::uint32_t i = 0; i < model.expert_layers; ++i) {
    planner.route(time, each);
  }
}

// Layers of experts are not spread over the buckets: the whole backward pass comes before the first
// bucket then, which hides less than a real framework would.
StepPlan plan_ddp(const PlanRequest& request) {
  const TrainingModel& model = request.model;
  Planner planner(request);
  pass(planner, model, model.forward, 1);
  const Bytes all = model.parameters * model.bytes_per_gradient;
  std::vector<std::uint32_t> under_way;
  Bytes done = 0;
  for (Bytes bucket = std::min(kFirstBucket, request.bucket); done < all; bucket = request.bucket) {
    const Bytes bytes = std::min(bucket, all - done);
    const double share = static_cast<double>(bytes) / static_cast<double>(all);
    if (model.expert_layers == 0) {
      planner.compute(model.backward, share);
    } else if (done == 0) {
      pass(planner, model, model.backward, 1);
    }
    under_way.push_back(planner.start(CollectiveKind::all_reduce, bytes));
    done += bytes;
  }
  for (const std::uint32_t one : under_way) {
    planner.wait(one);
  }
  return std::move(planner.plan);
}

// The next layer's parameters are gathered while this one computes: one gather is always ahead.
// With `reductions` (the backward pass) each layer's gradients start on their way when it has
// computed.
void gather_and_compute(Planner& planner, const TrainingModel& model, Duration time,
                        std::vector<std::uint32_t>* reductions) {
  const Bytes layer = model.parameters / model.layers * model.bytes_per_gradient;
  std::uint32_t next = planner.start(CollectiveKind::all_gather, layer);
  for (std::uint32_t i = 0; i < model.layers; ++i) {
    const std::uint32_t own = next;
    if (i + 1 < model.layers) {
      next = planner.start(CollectiveKind::all_gather, layer);
    }
    planner.wait(own);
    planner.compute(time, 1.0 / model.layers);
    if (reductions != nullptr) {
      reductions->push_back(planner.start(CollectiveKind::reduce_scatter, layer));
    }
  }
}

StepPlan plan_sharded(const PlanRequest& request) {
  Planner planner(request);
  std::vector<std::uint32_t> reductions;
  gather_and_compute(planner, request.model, request.model.forward, nullptr);
  gather_and_compute(planner, request.model, request.model.backward, &reductions);
  for (const std::uint32_t one : reductions) {
    planner.wait(one);
  }
  return std::move(planner.plan);
}

}  // namespace

const std::vector<TrainingModel>& training_models() {
  using std::chrono::milliseconds;
  static const std::vector<TrainingModel> kModels = {
      {"resnet50", 25'557'032, 4, 2, milliseconds{9}, milliseconds{18}, 0, 0},
      {"bert-large", 335'141'888, 24, 2, milliseconds{40}, milliseconds{80}, 0, 0},
      {"gpt2-xl", 1'557'611'200, 48, 2, milliseconds{150}, milliseconds{300}, 0, 0},
      {"llama-8b", 8'030'261'248, 32, 2, milliseconds{500}, milliseconds{1000}, 0, 0},
      // Top 2 of the experts: 4096 tokens of 1024 columns, twice, in bf16; dense part only.
      {"moe-small", 60'000'000, 12, 2, milliseconds{12}, milliseconds{24}, 16 << 20, 6},
  };
  return kModels;
}

Duration StepPlan::computing() const {
  Duration all{};
  for (const PlanItem& item : items) {
    all += item.time;
  }
  return all;
}

Bytes StepPlan::communicated() const {
  Bytes all = 0;
  for (const CollectiveSpec& one : collectives) {
    all += one.bytes;
  }
  return all;
}

StepPlan plan_step(const PlanRequest& request) {
  return request.parallelism == Parallelism::ddp ? plan_ddp(request) : plan_sharded(request);
}

}  // namespace weft::workloads
