// Owns applying policies to nodes, as the SR-IOV operator does.
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

// NICs such as a policy selects.
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

std::vector<PlannedNode> nodes_of(const Objects& objects, const ClusterOptions& options) {
  std::vector<PlannedNode> nodes;
  for (const ClusterNode& given : objects.nodes) {
    PlannedNode node{given.name, false, given.labels, given.pfs, {}, 0};
    for (const Policy& policy : objects.policies) {
      if (std::string missing;
          !given.has_state && selects(policy.node_selector, given.labels, missing)) {
        add_virtual_pfs(policy, options.virtual_pfs, node);
      }
    }
    nodes.push_back(std::move(node));
  }
  for (std::size_t i = 1; objects.nodes.empty() && i <= options.virtual_nodes; ++i) {
    PlannedNode node{"node" + std::to_string(i), true, options.labels, {}, {}, 0};
    node.labels.try_emplace("kubernetes.io/hostname", node.name);
    for (const Policy& policy : objects.policies) {
      for (const auto& [label, value] : policy.node_selector) {
        node.labels.try_emplace(label, value);
      }
      add_virtual_pfs(policy, options.virtual_pfs, node);
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

// The policies of one PF, of which the first that wants a VF has it.
class PfDivision {
 public:
  PfDivision(const PhysicalFunction& pf, PlannedNode& node, const std::string& prefix,
             Findings& findings)
      : pf_(pf), node_(node), prefix_(prefix), findings_(findings) {}

  void give(const Policy& policy) {
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
    const bool some = named != nullptr && named->vfs;
    const unsigned first = some ? named->vfs->first : 0;
    const unsigned last = some ? named->vfs->second : policy.num_vfs - 1;
    if (winner_ != nullptr && winner_->num_vfs < policy.num_vfs) {
      findings_.warning(policy.place,
                        policy.title() + " asks for " + std::to_string(policy.num_vfs) +
                            " VFs of " + pf_.name + ", of which " + winner_->title() +
                            ", which has more priority, makes " + std::to_string(winner_->num_vfs),
                        "give both the same numVfs");
    }
    const unsigned made = winner_ == nullptr ? policy.num_vfs : winner_->num_vfs;
    const Policy* taken_by = nullptr;
    for (unsigned vf = first; vf <= last && vf < made; ++vf) {
      if (const auto [owner, is_free] = owners_.emplace(vf, &policy); is_free) {
        node_.devices.push_back({prefix_ + "/" + policy.resource, pf_.name, vf});
      } else {
        taken_by = owner->second;
      }
    }
    if (taken_by != nullptr) {
      findings_.error(policy.place,
                      policy.title() + " wants VFs of " + pf_.name + " of " + node_.name +
                          " that " + taken_by->title() + " has, which comes first (priority " +
                          std::to_string(taken_by->priority) + ")",
                      "divide them: pfNames: [\"" + pf_.name + "#0-3\"] in one and [\"" + pf_.name +
                          "#4-7\"] in the other");
    }
    winner_ = winner_ == nullptr ? &policy : winner_;
  }

 private:
  const PhysicalFunction& pf_;
  PlannedNode& node_;
  const std::string& prefix_;
  Findings& findings_;
  const Policy* winner_ = nullptr;
  std::map<unsigned, const Policy*> owners_;
};

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
      pfs.erase(std::ranges::unique(pfs).begin(), pfs.end());
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
  std::ranges::stable_sort(policies, {}, &Policy::priority);
  for (PlannedNode& node : nodes) {
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
    // Virtual nodes are all alike: once is enough.
    if (!node.is_virtual || &node == &nodes.front()) {
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
