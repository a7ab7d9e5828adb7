// Owns giving pods their nodes, devices and addresses.
//
// For each pod, what a cluster would do with it, one after the other: find its networks, see
// whether it asks for enough devices, choose a node, hand out devices and addresses. What would
// keep it from starting becomes a finding at the line that is to be changed.
#include "emu/k8s/plan.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "emu/fabric/nearest_word.hpp"
#include "srd/base/joined.hpp"

namespace weft::k8s {
namespace {

std::string listed(const std::vector<std::string>& names) {
  return names.empty() ? "none" : joined(names, ", ");
}

// Plans all pods in the order of the files. Devices and addresses that a pod has taken are gone for
// those behind it, so the order decides who goes without.
class Planner {
 public:
  explicit Planner(PodPlan& plan) : plan_(plan) {
    for (const PlannedNode& node : plan_.nodes) {
      for (const ClusterDevice& device : node.devices) {
        known_resources_.insert(device.resource);
      }
    }
  }

  void plan_pods() {
    complain_of_overlaps();
    for (const Pod& pod : plan_.objects.pods) {
      PlannedPod planned{&pod, "", {}};
      std::vector<PodNetwork*> networks;
      // Each answer is looked at: a pod may have several faults.
      const bool found = find_networks(pod, networks);
      const bool asked = check_requests(pod, networks);
      if (found && asked) {
        if (PlannedNode* const node = choose_node(pod); node != nullptr) {
          give(pod, networks, *node, planned);
        }
      }
      plan_.pods.push_back(std::move(planned));
    }
  }

 private:
  // Faults of a template are those of all its pods: they are said once.
  void complain(const FilePlace& place, const Pod& pod, const std::string& what,
                const std::string& remedy) {
    if (said_.insert(place.text() + what).second) {
      plan_.findings.error(place, pod.owner + " " + what, remedy);
    }
  }

  PodNetwork* network_called(const std::string& name_space, const std::string& name) {
    for (PodNetwork& network : plan_.objects.networks) {
      if (network.name == name && network.name_space == name_space) {
        return &network;
      }
    }
    return nullptr;
  }

  bool find_networks(const Pod& pod, std::vector<PodNetwork*>& networks) {
    bool all = true;
    for (const NetworkAttachment& attachment : pod.attachments) {
      PodNetwork* const network = network_called(attachment.name_space, attachment.name);
      networks.push_back(network);
      if (network != nullptr) {
        continue;
      }
      all = false;
      const auto elsewhere =
          std::ranges::find(plan_.objects.networks, attachment.name, &PodNetwork::name);
      if (elsewhere != plan_.objects.networks.end()) {
        // Of such an object the network itself is made in the namespace that a field names.
        const bool is_operators = elsewhere->kind.starts_with("Sriov");
        complain(pod.annotation, pod,
                 "attaches the network '" + attachment.name + "' of namespace '" +
                     attachment.name_space + "'; it is in namespace '" + elsewhere->name_space +
                     "' (" + elsewhere->place.text() + ")",
                 is_operators
                     ? "networkNamespace: " + attachment.name_space + " in " + elsewhere->title()
                     : "write " + elsewhere->name_space + "/" + attachment.name +
                           ", or move the network");
        continue;
      }
      std::vector<std::string> names;
      for (const PodNetwork& one : plan_.objects.networks) {
        names.push_back(one.name);
      }
      const std::string meant = fabric::nearest_word(attachment.name, names);
      complain(
          pod.annotation, pod,
          "attaches the network '" + attachment.name + "', which nothing here makes",
          meant.empty() ? "the networks are " + listed(names) : "did you mean '" + meant + "'?");
    }
    return all;
  }

  // Every attachment takes one device of its network's resource from what the pod has asked for.
  bool check_requests(const Pod& pod, const std::vector<PodNetwork*>& networks) {
    bool good = !pod.has_unread_request;
    std::map<std::string, std::uint64_t> attached;
    for (const PodNetwork* network : networks) {
      if (network != nullptr && !network->resource.empty()) {
        ++attached[network->resource];
      }
    }
    for (const auto& [resource, count] : attached) {
      const auto asked = pod.resources.find(resource);
      const std::uint64_t has = asked == pod.resources.end() ? 0 : asked->second.count;
      // A request that could not be read may be the one that is missed here.
      if (has < count && !pod.has_unread_request) {
        good = false;
        complain(has == 0 ? pod.annotation : asked->second.place, pod,
                 "attaches " + std::to_string(count) + " networks of " + resource +
                     " and asks for " + std::to_string(has) + " of it",
                 "resources.limits: {" + resource + ": " + std::to_string(count) +
                     "} in one of its containers");
      }
    }
    for (const auto& [resource, request] : pod.resources) {
      if (known_resources_.contains(resource)) {
        continue;
      }
      good = false;
      const std::vector<std::string> names(known_resources_.begin(), known_resources_.end());
      // Another prefix is the most common mistake, and no near word by its letters.
      const std::string bare = resource.substr(resource.rfind('/') + 1);
      const auto same = std::ranges::find_if(
          names, [&](const std::string& name) { return name.ends_with("/" + bare); });
      const std::string meant = same != names.end() ? *same : fabric::nearest_word(resource, names);
      complain(request.place, pod, "asks for " + resource + ", which no node has",
               meant.empty() ? "the nodes have " + listed(names) +
                                   " (--resource NAME=N adds devices of another plugin)"
                             : "did you mean " + meant + "?");
    }
    return good;
  }

  // Whether the pod may be on that node. If not, `missing` becomes the label that the node lacks.
  static bool is_allowed(const Pod& pod, const PlannedNode& node, std::string& missing) {
    if (!pod.node.empty() && pod.node != node.name) {
      if (missing.empty()) {  // not for each of many nodes
        missing = "kubernetes.io/hostname=" + pod.node;
      }
      return false;
    }
    return selects(pod.node_selector, node.labels, missing);
  }

  // The node with the fewest pods of those that fit, as a scheduler that spreads them.
  PlannedNode* choose_node(const Pod& pod) {
    PlannedNode* best = nullptr;
    std::string missing;
    bool selected = false;
    for (PlannedNode& node : plan_.nodes) {
      if (!is_allowed(pod, node, missing)) {
        continue;
      }
      selected = true;
      const bool fits = std::ranges::all_of(pod.resources, [&](const auto& request) {
        return node.free(request.first) >= request.second.count;
      });
      if (fits && (best == nullptr || node.pods < best->pods)) {
        best = &node;
      }
    }
    if (best != nullptr) {
      return best;
    }
    if (!selected) {
      complain(pod.place, pod, "selects no node: none has the label " + missing,
               "label a node, or change nodeSelector or nodeName (--label " + missing +
                   " gives it to the virtual nodes)");
      return nullptr;
    }
    complain_of_shortage(pod);
    return nullptr;
  }

  // Says what the nodes where the pod may be lack for it, of which there is one at least: what no
  // node has, or only what the pods before it have left. The remedies differ.
  void complain_of_shortage(const Pod& pod) {
    std::vector<const PlannedNode*> nodes;
    for (const PlannedNode& node : plan_.nodes) {
      if (std::string missing; is_allowed(pod, node, missing)) {
        nodes.push_back(&node);
      }
    }
    // Nodes where it may not be may have what these lack: nothing is said of them.
    const bool is_anywhere = nodes.size() == plan_.nodes.size();
    const std::string where = is_anywhere ? "" : " where it may be";
    const std::string or_elsewhere = is_anywhere ? "" : ", or select other nodes";
    using Count = std::uint64_t (PlannedNode::*)(const std::string&) const;
    const auto most = [&](const std::string& resource, Count count) {
      std::uint64_t largest = 0;
      for (const PlannedNode* node : nodes) {
        largest = std::max(largest, (node->*count)(resource));
      }
      return largest;
    };
    std::vector<std::string> wanted;
    for (const auto& [resource, request] : pod.resources) {
      wanted.push_back(std::to_string(request.count) + " of " + resource);
      if (const std::uint64_t largest = most(resource, &PlannedNode::all);
          request.count > largest) {
        complain(request.place, pod,
                 "asks for " + wanted.back() + "; no node" + where + " has more than " +
                     std::to_string(largest),
                 "ask for less, or raise numVfs" + or_elsewhere);
        return;
      }
    }
    const FilePlace& place = pod.resources.begin()->second.place;
    const bool is_ever_possible = std::ranges::any_of(nodes, [&](const PlannedNode* node) {
      return std::ranges::all_of(pod.resources, [&](const auto& request) {
        return node->all(request.first) >= request.second.count;
      });
    });
    if (!is_ever_possible) {
      complain(place, pod,
               "asks for " + joined(wanted, " and ") + "; no node" + where + " has them together",
               "ask for less, or let policies select the same nodes for them" + or_elsewhere);
      return;
    }
    // From here on of each pod, not once for a template: the user sees how many do not start.
    const std::string remedy = "fewer pods, or more virtual functions (numVfs) or nodes" + where;
    for (const auto& [resource, request] : pod.resources) {
      const std::uint64_t left = most(resource, &PlannedNode::free);
      if (request.count <= left) {
        continue;
      }
      std::uint64_t all = 0;
      for (const PlannedNode* node : nodes) {
        all += node->all(resource);
      }
      const std::string what = left == 0
                                   ? " finds no free " + resource + ": the other pods have all " +
                                         std::to_string(all) + where
                                   : " asks for " + std::to_string(request.count) + " of " +
                                         resource + "; the other pods have left " +
                                         std::to_string(left) + " on a node" + where + " at most";
      plan_.findings.error(request.place, pod.title() + what, remedy);
      return;
    }
    plan_.findings.error(place,
                         pod.title() + " asks for " + joined(wanted, " and ") +
                             "; the other pods have left them only on different nodes" + where,
                         remedy);
  }

  // The node must have a free device of the resource: choose_node() has counted them.
  ClusterDevice& take_device(PlannedNode& node, const std::string& resource) {
    ClusterDevice& device = *std::ranges::find_if(node.devices, [&](const ClusterDevice& d) {
      return d.resource == resource && !d.is_taken;
    });
    device.is_taken = true;
    return device;
  }

  // False, and a finding, where no address is left.
  bool give_addresses(const Pod& pod, const NetworkAttachment& attachment, PodNetwork& network,
                      const std::string& node, std::vector<std::string>& addresses) {
    Ipam& ipam = network.ipam;
    if (ipam.type == "static") {
      addresses = attachment.addresses.empty() ? ipam.fixed : attachment.addresses;
      for (const std::string& address : addresses) {
        // The same address for every pod of a template is the usual mistake with `static`.
        const auto [owner, is_free] =
            fixed_.emplace(network.name_space + "/" + network.name + " " + address, pod.title());
        if (!is_free) {
          complain(network.place, pod,
                   "would have the address " + address + " that " + owner->second +
                       " has: the ipam of '" + network.name + "' is static",
                   "whereabouts with a range, or \"ips\" in each pod's annotation");
        }
      }
      return true;
    }
    if (ipam.type == "dhcp") {
      addresses = {"from dhcp"};
      return true;
    }
    for (std::size_t i = 0; i < ipam.pools.size(); ++i) {
      AddressPool* pool = &ipam.pools[i];
      if (ipam.per_node) {
        // host-local keeps its books on each node, so two nodes give the same address.
        const std::string whose =
            node + "/" + network.name_space + "/" + network.name + "/" + std::to_string(i);
        pool = &per_node_.try_emplace(whose, *pool).first->second;
      }
      auto address = pool->take();
      while (address && ipam.type == "whereabouts" && !reserve(ipam, *pool, *address)) {
        address = pool->take();
      }
      if (address) {
        addresses.push_back(*address);
        continue;
      }
      constexpr std::uint64_t kMany = 1'000'000;
      plan_.findings.error(network.place,
                           pod.title() + " gets no address: the range of '" + network.name +
                               "' has " + std::to_string(pool->size(kMany)) + ", all are given",
                           "a larger range: as many addresses as pods at a time");
      return false;
    }
    return true;
  }

  // Whether the address is still free, and takes it if so. Whereabouts keeps one account for all
  // networks, or one for each range where it is told that ranges may overlap.
  bool reserve(const Ipam& ipam, const AddressPool& pool, const std::string& address) {
    const std::string account = ipam.is_account_shared ? ipam.account
                                                       : ipam.account + "/" + pool.first().text() +
                                                             "-" + pool.last().text();
    return reserved_.insert(account + " " + address.substr(0, address.find('/'))).second;
  }

  // Hands out devices and addresses. A pod that gets no address keeps its devices, as on a cluster,
  // where it waits forever with them.
  void give(const Pod& pod, const std::vector<PodNetwork*>& networks, PlannedNode& node,
            PlannedPod& planned) {
    bool good = true;
    std::map<std::string, std::uint64_t> left;
    for (const auto& [resource, request] : pod.resources) {
      left[resource] = request.count;
    }
    for (std::size_t i = 0; i < networks.size(); ++i) {
      PodNetwork& network = *networks[i];
      PlannedDevice device;
      device.network = network.name_space + "/" + network.name;
      // Multus calls them net1, net2, ... in the annotation's order.
      device.interface = pod.attachments[i].interface.empty() ? "net" + std::to_string(i + 1)
                                                              : pod.attachments[i].interface;
      device.resource = network.resource;
      if (!network.resource.empty()) {
        // check_requests() has seen to it that `left` suffices.
        const ClusterDevice& taken = take_device(node, network.resource);
        device.device = taken.text();
        device.pf = taken.pf;
        device.number = taken.number;
        --left[network.resource];
      }
      good = give_addresses(pod, pod.attachments[i], network, node.name, device.addresses) && good;
      planned.devices.push_back(std::move(device));
    }
    // What was asked for beyond the attachments: devices without an interface.
    for (const auto& [resource, count] : left) {
      for (std::uint64_t n = 0; n < count; ++n) {
        const ClusterDevice& taken = take_device(node, resource);
        planned.devices.push_back({resource, taken.text(), taken.pf, taken.number, "", "", {}});
      }
    }
    ++node.pods;
    planned.node = good ? node.name : "";
  }

  static bool overlap(const Ipam& a, const Ipam& b) {
    return !a.per_node && !b.per_node && std::ranges::any_of(a.pools, [&](const AddressPool& one) {
      return std::ranges::any_of(b.pools,
                                 [&](const AddressPool& other) { return one.overlaps(other); });
    });
  }

  // Whereabouts looks at all networks before it gives an address, unless it is told not to, or by
  // different names of networks.
  void complain_of_overlaps() {
    auto& networks = plan_.objects.networks;
    for (std::size_t i = 0; i < networks.size(); ++i) {
      for (std::size_t j = i + 1; j < networks.size(); ++j) {
        const Ipam& a = networks[i].ipam;
        const Ipam& b = networks[j].ipam;
        const bool is_checked =
            a.is_account_shared && b.is_account_shared && a.account == b.account;
        if (!is_checked && overlap(a, b)) {
          plan_.findings.warning(networks[j].place,
                                 networks[j].title() + " and " + networks[i].title() + " (" +
                                     networks[i].place.text() + ") hand out the same addresses",
                                 "ranges that do not overlap, or leave enable_overlapping_ranges "
                                 "and network_name out");
        }
      }
    }
  }

  PodPlan& plan_;
  std::set<std::string> known_resources_;
  std::set<std::string> said_;
  std::map<std::string, std::string> fixed_;  // static addresses, and whose they are
  std::map<std::string, AddressPool> per_node_;
  std::set<std::string> reserved_;  // of whereabouts: accounts and addresses
};

// What a network is made from must be there.
void check_network_resources(PodPlan& plan) {
  std::vector<std::string> names;
  for (const PlannedNode& node : plan.nodes) {
    for (const ClusterDevice& device : node.devices) {
      if (std::ranges::find(names, device.resource) == names.end()) {
        names.push_back(device.resource);
      }
    }
  }
  for (const PodNetwork& network : plan.objects.networks) {
    if (network.resource.empty() || std::ranges::find(names, network.resource) != names.end()) {
      continue;
    }
    const std::string meant = fabric::nearest_word(network.resource, names);
    plan.findings.error(
        network.place,
        network.title() + " takes devices of " + network.resource + ", which no policy makes here",
        meant.empty() ? "the nodes have " + listed(names) : "did you mean " + meant + "?");
  }
}

// Replaces each pod of a DaemonSet by one for each node that it selects. It happens after the nodes
// are known and before any pod is planned.
void spread_daemons(PodPlan& plan) {
  std::vector<Pod> pods;
  for (Pod& pod : plan.objects.pods) {
    std::vector<const PlannedNode*> selected;
    for (const PlannedNode& node : plan.nodes) {
      std::string missing;
      if (pod.on_each_node && selects(pod.node_selector, node.labels, missing)) {
        selected.push_back(&node);
      }
    }
    if (!plan.objects.budget.take(pod, selected.size())) {
      complain_of_crowd(pod, plan.findings);
      continue;
    }
    for (std::size_t i = 0; i < selected.size(); ++i) {
      pods.push_back(pod);
      pods.back().name += "-" + std::to_string(i);
      pods.back().node = selected[i]->name;
    }
    if (selected.empty()) {  // then it is said that it selects no node
      pods.push_back(std::move(pod));
    }
  }
  plan.objects.pods = std::move(pods);
}

}  // namespace

PodPlan make_plan(const std::vector<ManifestFile>& files, const PlanOptions& options) {
  PodPlan plan;
  std::vector<Manifest> manifests;
  for (const ManifestFile& file : files) {
    for (Manifest& manifest : load_manifests(file, plan.findings)) {
      manifests.push_back(std::move(manifest));
    }
  }
  plan.objects = read_objects(manifests, options.read, plan.findings);
  plan.nodes = build_cluster(plan.objects, options.cluster, plan.findings);
  spread_daemons(plan);
  check_network_resources(plan);
  Planner(plan).plan_pods();
  return plan;
}

}  // namespace weft::k8s
