// Owns applying policies to nodes, as the SR-IOV operator does.
//
// The nodes come from the manifests, if there are any (Node, SriovNetworkNodeState); else from the
// policies, as nodes that would suit them. A policy makes virtual functions (VFs) of physical ones
// (PFs), and each VF is a device of one resource that pods may ask for.
#include "emu/k8s/cluster.hpp"

#include <algorithm>

#include "emu/fabric/nearest_word.hpp"

namespace weft::k8s {
namespace {

bool is_one_of(const std::string& word, const std::vector<std::string>& words) {
  return std::ranges::find(words, word) != words.end();
}

// The policy's entry for that PF, if it names PFs.
const PfName* name_of(const Policy& policy, const PhysicalFunction& pf) {
  const auto found = std::ranges::find(policy.pf_names, pf.name, &PfName::pf);
  return found == policy.pf_names.end() ? nullptr : &*found;
}

bool matches(const Policy& policy, const PhysicalFunction& pf) {
  return (policy.vendor.empty() || policy.vendor == pf.vendor) &&
         (policy.device_id.empty() || policy.device_id == pf.device_id) &&
         (policy.pf_names.empty() || name_of(policy, pf) != nullptr) &&
         (policy.root_devices.empty() || is_one_of(pf.root_device, policy.root_devices));
}

// Adds NICs that the policy would select to a node that no manifest describes: those that the
// policy names, by name or address; if it names none, as many as the options say.
void add_virtual_pfs(const Policy& policy, std::size_t otherwise, PlannedNode& node) {
  const std::size_t count = !policy.pf_names.empty()       ? policy.pf_names.size()
                            : !policy.root_devices.empty() ? policy.root_devices.size()
                                                           : otherwise;
  for (std::size_t i = 0; i < count; ++i) {
    PhysicalFunction pf{
        i < policy.pf_names.size() ? policy.pf_names[i].pf : "pf" + std::to_string(i),
        policy.vendor, policy.device_id,
        i < policy.root_devices.size() ? policy.root_devices[i] : "", 0};
    const auto same = std::ranges::find(node.pfs, pf.name, &PhysicalFunction::name);
    if (same == node.pfs.end()) {
      node.pfs.push_back(std::move(pf));
    } else {  // another policy has said something of it
      same->vendor = same->vendor.empty() ? pf.vendor : same->vendor;
      same->device_id = same->device_id.empty() ? pf.device_id : same->device_id;
      same->root_device = same->root_device.empty() ? pf.root_device : same->root_device;
    }
  }
}

// Whether a node may have both sets of labels: none is asked for with two values.
bool is_compatible(const Labels& selector, const Labels& labels) {
  return std::ranges::all_of(selector, [&](const auto& pair) {
    const auto found = labels.find(pair.first);
    return found == labels.end() || found->second == pair.second;
  });
}

// The kinds of nodes that the policies call for, as their labels. One kind serves all policies that
// agree; a policy that contradicts all kinds so far makes another one, which earlier policies that
// agree with it select, too.
std::vector<Labels> kinds_of_nodes(const std::vector<Policy>& policies, const Labels& base) {
  std::vector<Labels> kinds{base};
  for (const Policy& policy : policies) {
    bool is_at_home = false;
    for (Labels& kind : kinds) {
      if (is_compatible(policy.node_selector, kind)) {
        kind.insert(policy.node_selector.begin(), policy.node_selector.end());
        is_at_home = true;
      }
    }
    if (!is_at_home && is_compatible(policy.node_selector, base)) {
      Labels kind = base;
      kind.insert(policy.node_selector.begin(), policy.node_selector.end());
      for (const Policy& other : policies) {
        if (&other == &policy) {
          break;
        }
        if (is_compatible(other.node_selector, kind)) {
          kind.insert(other.node_selector.begin(), other.node_selector.end());
        }
      }
      kinds.push_back(std::move(kind));
    }
  }
  return kinds;
}

// The label that the kubelet gives each node, with its name.
constexpr const char* kHostName = "kubernetes.io/hostname";

// Adds the NICs that the policies expect of the node.
void furnish(const Objects& objects, const ClusterOptions& options, PlannedNode& node) {
  for (const Policy& policy : objects.policies) {
    if (std::string missing; selects(policy.node_selector, node.labels, missing)) {
      add_virtual_pfs(policy, options.virtual_pfs, node);
    }
  }
}

// The nodes of a cluster of which no manifest speaks: `virtual_nodes` of each kind, but only one of
// a kind whose labels name its host.
std::vector<PlannedNode> virtual_nodes(const Objects& objects, const ClusterOptions& options) {
  std::vector<PlannedNode> nodes;
  for (const Labels& kind : kinds_of_nodes(objects.policies, options.labels)) {
    const auto host = kind.find(kHostName);
    const std::size_t count = host == kind.end() ? options.virtual_nodes : 1;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name =
          host == kind.end() ? "node" + std::to_string(nodes.size() + 1) : host->second;
      nodes.push_back({name, true, i == 0, kind, {}, {}, 0});
      nodes.back().labels.try_emplace(kHostName, name);
      furnish(objects, options, nodes.back());
    }
  }
  return nodes;
}

// A node that is given without labels, or without a state, gets what the policies would like.
std::vector<PlannedNode> nodes_of(const Objects& objects, const ClusterOptions& options) {
  if (objects.nodes.empty()) {
    return virtual_nodes(objects, options);
  }
  std::vector<PlannedNode> nodes;
  for (const ClusterNode& given : objects.nodes) {
    PlannedNode node{given.name, false, true, given.labels, given.pfs, {}, 0};
    if (!given.is_labelled) {
      node.labels = options.labels;
      node.labels.try_emplace(kHostName, given.name);
      node.labels = kinds_of_nodes(objects.policies, node.labels).front();
    }
    if (!given.has_state) {
      furnish(objects, options, node);
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

// The virtual functions of one PF, as the operator divides them: of policies whose functions
// overlap the one of more priority stays, whole; those that stay are merged, and the PF has as many
// functions as the largest numVfs.
class PfDivision {
 public:
  PfDivision(const PhysicalFunction& pf, PlannedNode& node, const std::string& prefix,
             Findings& findings)
      : pf_(pf), node_(node), prefix_(prefix), findings_(findings) {}

  // Call it for the policies in the order of their priority, the most important first: a later one
  // loses where they overlap.
  void give(const Policy& policy) {
    // 0: not known, so nothing is said.
    if (pf_.max_vfs != 0 && policy.num_vfs > pf_.max_vfs) {
      findings_.error(policy.place,
                      policy.title() + " asks for " + std::to_string(policy.num_vfs) + " VFs of " +
                          pf_.name + " of " + node_.name + ", which can have " +
                          std::to_string(pf_.max_vfs),
                      "numVfs: " + std::to_string(pf_.max_vfs) +
                          " at most, or raise the limit in the NIC's firmware");
      return;
    }
    const PfName* const named = name_of(policy, pf_);
    // Without a range in the policy it is all of its VFs.
    const Group group{
        &policy, named != nullptr && named->vfs ? *named->vfs : std::pair(0U, policy.num_vfs - 1)};
    for (const Group& other : groups_) {
      if (group.vfs.first <= other.vfs.second && other.vfs.first <= group.vfs.second) {
        complain_of_overlap(group, other);
        return;
      }
      if (policy.resource == other.policy->resource) {
        findings_.error(policy.place,
                        policy.title() + " makes VFs of " + pf_.name + " of " + node_.name + " " +
                            policy.resource + ", as " + other.policy->title() +
                            " does, of which the operator keeps only the one that comes first",
                        "one range in one of the policies, or two names of resources");
        return;
      }
    }
    groups_.push_back(group);
    for (unsigned vf = group.vfs.first; vf <= group.vfs.second; ++vf) {
      node_.devices.push_back({prefix_ + "/" + policy.resource, pf_.name, vf});
    }
  }

 private:
  struct Group {
    const Policy* policy;
    std::pair<unsigned, unsigned> vfs;  // the first and the last one
  };

  void complain_of_overlap(const Group& group, const Group& other) {
    const Policy& policy = *group.policy;
    findings_.error(policy.place,
                    policy.title() + " wants VFs of " + pf_.name + " of " + node_.name + " that " +
                        other.policy->title() + " has, which comes first (priority " +
                        std::to_string(other.policy->priority) + ")",
                    "divide them: pfNames: [\"" + pf_.name + "#0-3\"] in one and [\"" + pf_.name +
                        "#4-7\"] in the other");
  }

  const PhysicalFunction& pf_;
  PlannedNode& node_;
  const std::string& prefix_;
  Findings& findings_;
  std::vector<Group> groups_;
};

// A policy that selects no node or no NIC does nothing on a cluster, silently. The nearest name
// tells a typing mistake.
void complain_of_idle_policies(const Objects& objects, const std::vector<PlannedNode>& nodes,
                               Findings& findings) {
  for (const Policy& policy : objects.policies) {
    std::string missing;
    std::vector<std::string> pfs;
    bool has_node = false;
    bool has_pf = false;
    for (const PlannedNode& node : nodes) {
      std::string other;
      if (!selects(policy.node_selector, node.labels, missing.empty() ? missing : other)) {
        continue;
      }
      has_node = true;
      for (const PhysicalFunction& pf : node.pfs) {
        has_pf = has_pf || matches(policy, pf);
        pfs.push_back(pf.name);
      }
    }
    if (!has_node) {
      findings.error(
          policy.place, policy.title() + " selects no node: none has the label " + missing,
          "label the nodes (kubectl label node NAME " + missing + "), or change nodeSelector");
    } else if (!has_pf) {
      const std::string asked = policy.pf_names.empty() ? "" : policy.pf_names.front().pf;
      const std::string meant = fabric::nearest_word(asked, pfs);
      std::ranges::sort(pfs);
      pfs.erase(std::unique(pfs.begin(), pfs.end()), pfs.end());
      std::string all;
      for (const std::string& pf : pfs) {
        all += (all.empty() ? "" : ", ") + pf;
      }
      findings.error(policy.pf_names.empty() ? policy.place : policy.pf_names.front().place,
                     policy.title() + " selects no NIC of its nodes" +
                         (asked.empty() ? "" : ": there is no '" + asked + "'"),
                     meant.empty() ? "the nodes have " + (all.empty() ? "no NICs" : all)
                                   : "did you mean '" + meant + "'?");
    }
  }
}

}  // namespace

std::uint64_t PlannedNode::free(const std::string& resource) const {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      devices, [&](const ClusterDevice& d) { return d.resource == resource && !d.is_taken; }));
}

std::uint64_t PlannedNode::all(const std::string& resource) const {
  return static_cast<std::uint64_t>(
      std::ranges::count(devices, resource, &ClusterDevice::resource));
}

bool selects(const Labels& selector, const Labels& labels, std::string& missing) {
  for (const auto& [label, value] : selector) {
    const auto found = labels.find(label);
    if (found == labels.end() || found->second != value) {
      missing = label + "=" + value;
      return false;
    }
  }
  return true;
}

std::vector<PlannedNode> build_cluster(const Objects& objects, const ClusterOptions& options,
                                       Findings& findings) {
  std::vector<PlannedNode> nodes = nodes_of(objects, options);
  std::vector<const Policy*> policies;
  for (const Policy& policy : objects.policies) {
    policies.push_back(&policy);
  }
  // The lowest number wins; of equal ones the order of the files decides.
  std::ranges::stable_sort(policies, {}, &Policy::priority);
  for (PlannedNode& node : nodes) {
    // Nodes of a kind have the same faults, so only those of the first are reported.
    Findings of_node;
    const std::vector<PhysicalFunction> pfs = node.pfs;
    for (const PhysicalFunction& pf : pfs) {
      PfDivision division(pf, node, options.prefix, of_node);
      for (const Policy* policy : policies) {
        if (std::string missing;
            selects(policy->node_selector, node.labels, missing) && matches(*policy, pf)) {
          division.give(*policy);
        }
      }
    }
    if (node.is_first_of_kind) {
      findings.append(of_node);
    }
    for (const auto& [resource, count] : options.resources) {
      for (unsigned i = 0; i < count; ++i) {
        node.devices.push_back({resource, "", i});
      }
    }
  }
  complain_of_idle_policies(objects, nodes, findings);
  return nodes;
}

}  // namespace weft::k8s
