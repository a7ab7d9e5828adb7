// Owns which pods would get which devices and addresses, and why others would not.
#pragma once

#include <string>
#include <vector>

#include "emu/k8s/cluster.hpp"
#include "emu/k8s/objects.hpp"

namespace weft::k8s {

// A device of a pod, and the network for which it has it.
struct PlannedDevice {
  std::string resource;
  std::string device;  // "ib0 VF 3"
  std::string pf;
  unsigned number = 0;
  std::string network;    // empty: it was asked for without one
  std::string interface;  // "net1"
  std::vector<std::string> addresses;
};

// Where a pod runs and what it gets. `pod` points into PodPlan::objects, so a plan must not be
// copied.
struct PlannedPod {
  const Pod* pod = nullptr;
  std::string node;  // empty: it does not start
  std::vector<PlannedDevice> devices;
};

struct PlanOptions {
  ReadOptions read;
  ClusterOptions cluster;
};

struct PodPlan {
  Objects objects;
  std::vector<PlannedNode> nodes;
  std::vector<PlannedPod> pods;  // of objects.pods, in their order
  Findings findings;

  [[nodiscard]] bool is_good() const { return !findings.has_errors(); }
};

// Never fails: whatever is wrong with the files becomes a finding, and the rest is planned.
[[nodiscard]] PodPlan make_plan(const std::vector<ManifestFile>& files, const PlanOptions& options);

// For people, and for programs (docs/json.md).
[[nodiscard]] std::string plan_text(const PodPlan& plan);
[[nodiscard]] std::string plan_json(const PodPlan& plan);

}  // namespace weft::k8s
