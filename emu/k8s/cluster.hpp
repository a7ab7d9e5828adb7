// Owns the nodes of a cluster with their virtual functions, after the policies have been applied.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "emu/k8s/objects.hpp"

namespace weft::k8s {

// A device that a pod can be given.
struct ClusterDevice {
  std::string resource;  // with its prefix
  std::string pf;        // empty: not a virtual function
  unsigned number = 0;   // of the VF in its PF, or of the device in its resource
  bool is_taken = false;

  [[nodiscard]] std::string text() const {
    return pf.empty() ? "device " + std::to_string(number) : pf + " VF " + std::to_string(number);
  }
};

// A node, and what has been taken of it so far.
struct PlannedNode {
  std::string name;
  bool is_virtual = false;       // no manifest describes it
  bool is_first_of_kind = true;  // others are like it, but for their names
  Labels labels;
  std::vector<PhysicalFunction> pfs;
  std::vector<ClusterDevice> devices;
  std::size_t pods = 0;

  [[nodiscard]] std::uint64_t free(const std::string& resource) const;
  [[nodiscard]] std::uint64_t all(const std::string& resource) const;
};

struct ClusterOptions {
  std::string prefix = "openshift.io";
  std::size_t virtual_nodes = 2;  // of each kind, if no manifest describes a node
  std::size_t virtual_pfs = 4;    // of each, where policies name none
  Labels labels;                  // of the virtual nodes, beside those that policies select
  std::map<std::string, unsigned> resources;  // other devices of every node: name and number
};

// Nodes that no manifest describes have what the policies ask for: their labels and NICs.
[[nodiscard]] std::vector<PlannedNode> build_cluster(const Objects& objects,
                                                     const ClusterOptions& options,
                                                     Findings& findings);

// Whether a node has all these labels. If not, `missing` is the first one.
[[nodiscard]] bool selects(const Labels& selector, const Labels& labels, std::string& missing);

}  // namespace weft::k8s
