// Owns turning pods, devices and addresses into hosts, cables and containers.
//
// A pod with devices is a host, with a NIC for each of them. Its containers share the host's NICs
// and its network namespace: the first one is the host's own, the others stand beside it. What a
// plan has and an engine cannot do becomes a note and does not end the start.
#include "emu/labs/pod_lab.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "emu/fabric/yaml_reader.hpp"
#include "emu/k8s/address_pool.hpp"
#include "emu/labs/pod_command.hpp"

namespace weft::labs {
namespace {

// No pod is called like that: names of pods have no underscore.
constexpr const char* kFabric = "_fabric";
constexpr std::size_t kMaxHosts = 254;  // weftd's
constexpr std::size_t kMaxNics = 16;
constexpr std::size_t kMaxInterfaceName = 15;    // the kernel's
constexpr const char* kFirstInterface = "eth0";  // of every container

// Stricter than Kubernetes: the name becomes a part of an option of the engine, in which a comma
// begins the next part.
bool is_interface_name(const std::string& name) {
  return name.size() <= kMaxInterfaceName && fabric::is_node_name(name);
}

using k8s::IpAddress;
using k8s::PlannedDevice;
using k8s::PlannedPod;
using k8s::Pod;

// An address as a plan has it, "192.168.100.1/24", and the subnet that it lies in.
struct GivenAddress {
  IpAddress address;
  k8s::Subnet subnet;
  std::string subnet_text;
};
std::optional<GivenAddress> parse_given(const std::string& text) {
  const auto subnet = k8s::parse_subnet(text);
  const auto address = k8s::parse_address(text.substr(0, text.find('/')));
  if (!subnet || !address) {
    return std::nullopt;
  }
  return GivenAddress{*address, *subnet,
                      fmt::format("{}/{}", subnet->first.text(), subnet->length)};
}

// The IP networks beside that of the pods. Networks of manifests that share a range are one here,
// as container engines have a subnet only once.
class MoreNetworks {
 public:
  // The pod's interface for this device; none, and a note, where it cannot be had.
  void add(const PlannedPod& pod, const PlannedDevice& device, LabNode& node,
           std::vector<std::string>& notes) {
    std::vector<GivenAddress> given;
    std::set<std::string> subnets;
    for (const std::string& text : device.addresses) {
      if (const auto one = parse_given(text)) {
        subnets.insert(one->subnet_text);
        given.push_back(*one);
      }
    }
    const std::string key = fmt::format("{}", fmt::join(subnets, " "));
    const auto note = [&](const std::string& why) {
      notes.push_back(fmt::format("{}: {} has no interface {} with {}: {}", pod.pod->place.text(),
                                  pod.pod->title(), device.interface,
                                  fmt::join(device.addresses, " "), why));
    };
    if (given.empty()) {
      return device.addresses.empty() ? void() : note("no address is known");
    }
    Entry& entry = entries_.try_emplace(key, Entry{name_for(device.network), {}, {}}).first->second;
    const bool is_again = std::ranges::find(node.interfaces, entry.name, &LabInterface::network) !=
                          node.interfaces.end();
    if (is_again || !is_interface_name(device.interface)) {
      return note(is_again ? "an engine gives a container one interface in a subnet"
                           : "its name is too long, or has other letters than those of names");
    }
    if (device.interface == kFirstInterface ||
        std::ranges::find(node.interfaces, device.interface, &LabInterface::name) !=
            node.interfaces.end()) {
      return note("the pod has another interface of that name");
    }
    LabInterface interface {
      entry.name, device.interface, {}
    };
    for (const GivenAddress& one : given) {
      if (entry.taken.contains(one.address)) {
        return note("another pod has that address");
      }
      if (std::ranges::count(given, one.address, &GivenAddress::address) > 1) {
        return note("it is given one address twice");
      }
    }
    for (const GivenAddress& one : given) {
      entry.taken.insert(one.address);
      interface.addresses.push_back(one.address.text());
      entry.subnets.emplace(one.subnet_text, one.subnet);
    }
    node.interfaces.push_back(std::move(interface));
  }

  // The networks with their gateways, which engines want: the last address of each subnet that no
  // pod has. Call it when all pods have been added.
  [[nodiscard]] Result<std::vector<LabNetwork>> networks() const {
    std::vector<LabNetwork> networks;
    for (const auto& [key, entry] : entries_) {
      LabNetwork network{entry.name, {}};
      for (const auto& [text, subnet] : entry.subnets) {
        IpAddress gateway = subnet.last;
        gateway.number -= subnet.first.is_v6 ? 0 : 1;  // IPv4's last one is for broadcasts
        while (gateway.number > subnet.first.number && entry.taken.contains(gateway)) {
          --gateway.number;
        }
        if (gateway.number <= subnet.first.number) {
          return fail(ErrorCode::invalid_argument,
                      fmt::format("network '{}': {} has no address left for the gateway that the "
                                  "container engine needs",
                                  entry.name, text));
        }
        network.subnets.emplace_back(text, gateway.text());
      }
      networks.push_back(std::move(network));
    }
    return networks;
  }

 private:
  struct Entry {
    std::string name;
    std::map<std::string, k8s::Subnet> subnets;
    std::set<IpAddress> taken;
  };
  // "default/ib-net" as engines can call it.
  [[nodiscard]] std::string name_for(std::string network) const {
    std::ranges::replace(network, '/', '.');
    std::string name = network;
    const auto is_taken = [&](const auto& pair) { return pair.second.name == name; };
    for (std::size_t n = 2; std::ranges::any_of(entries_, is_taken); ++n) {
      name = fmt::format("{}.{}", network, n);
    }
    return name;
  }

  std::map<std::string, Entry> entries_;  // by the subnets
};

// Makes one lab, once.
class PodLabMaker {
 public:
  PodLabMaker(const k8s::PodPlan& plan, const PodLabOptions& options)
      : plan_(plan), options_(options) {}

  Result<PodLab> make() {
    lab_.file.name = options_.name;
    lab_.file.topology.name = options_.name;
    fabric_ = lab_.file.topology.add_switch(kFabric, 2);
    // A name that only one pod has needs no namespace in front of it.
    std::map<std::string, std::size_t> pods_called;
    for (const PlannedPod& pod : plan_.pods) {
      pods_called[pod.pod->name] += pod.node.empty() ? 0 : 1;
    }
    for (const PlannedPod& pod : plan_.pods) {
      if (pod.node.empty()) {
        continue;
      }
      const std::string& name = pod.pod->name;
      const auto done =
          add_pod(pod, free_name(pods_called[name] > 1 ? pod.pod->name_space + "." + name : name));
      if (!done) {
        return tl::unexpected(
            Error{done.error().code, pod.pod->place.text() + ": " + done.error().message});
      }
    }
    if (hosts_ == 0) {
      return fail(ErrorCode::invalid_argument, "no pod that starts has a device: nothing to run");
    }
    if (hosts_ > kMaxHosts) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("{} pods have devices; an emulated network has at most {} hosts",
                              hosts_, kMaxHosts));
    }
    auto networks = networks_.networks();
    if (!networks) {
      return tl::unexpected(networks.error());
    }
    lab_.file.more_networks = std::move(*networks);
    add_services();
    return std::move(lab_);
  }

 private:
  // Names that differ on a cluster may be one here: a Deployment's pods have random names there,
  // and a pod's second container is called after both.
  std::string free_name(const std::string& wanted) {
    std::string name = wanted;
    for (std::size_t n = 2; !taken_.insert(name).second; ++n) {
      name = fmt::format("{}.{}", wanted, n);
    }
    return name;
  }

  Result<void> add_pod(const PlannedPod& planned, const std::string& name) {
    const Pod& pod = *planned.pod;
    // Those with an underscore are switches.
    if (!fabric::is_node_name(name) || name.find('_') != std::string::npos) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("pod '{}': as a host it needs a name of at most 63 letters, digits, "
                              "dots and dashes",
                              name));
    }
    LabNode shared;
    shared.name = name;
    shared.place = pod.place.text();
    shared.has_terminal = false;
    if (auto done = plug_in(planned, shared); !done) {
      return done;
    }
    for (const PlannedDevice& device : planned.devices) {
      networks_.add(planned, device, shared, lab_.notes);
    }
    if (!pod.init_containers.empty()) {
      lab_.notes.push_back(fmt::format("{}: {}: its init containers ({}) are not run",
                                       pod.place.text(), pod.title(),
                                       fmt::join(pod.init_containers, ", ")));
    }
    for (std::size_t i = 0; i < pod.containers.size(); ++i) {
      const k8s::PodContainer& container = pod.containers[i];
      LabNode node = shared;
      if (i > 0) {
        node.name = free_name(name + "." + container.name);
        node.beside = name;
        node.interfaces.clear();
        if (!fabric::is_node_name(node.name)) {
          return fail(
              ErrorCode::invalid_argument,
              fmt::format("container '{}' of pod '{}': their names are too long together, or "
                          "have other letters than those of names",
                          container.name, name));
        }
      }
      if (auto done = furnish_container(planned, container, options_, node, lab_.notes); !done) {
        return done;
      }
      admit_user_of(node, lab_.file.other_users);
      lab_.processes.push_back(
          {pod.name_space + "/" + pod.name, node.name, pod.restart, pod.attempts});
      lab_.file.nodes.push_back(std::move(node));
    }
    names_[&pod] = name;
    return {};
  }

  // Makes the pod a host, if it has devices, with a cable for each of them in their order: the
  // order of cables is that of the NICs in the pod.
  Result<void> plug_in(const PlannedPod& planned, LabNode& node) {
    fabric::Topology& topology = lab_.file.topology;
    const fabric::LinkProperties cable{.rate = options_.rate};
    std::size_t nics = 0;
    fabric::NodeId host = fabric::kNone;
    for (const PlannedDevice& device : planned.devices) {
      if (device.resource.empty()) {
        continue;  // a network without a device
      }
      const auto said = options_.devices.find(device.resource);
      const std::string kind =
          said != options_.devices.end() ? said->second : device_of_resource(device.resource);
      // A host has one device tree, which is of one kind.
      if (nics > 0 && kind != node.device) {
        return fail(ErrorCode::invalid_argument,
                    fmt::format("pod '{}' has devices of the kinds {} and {}: one can be emulated "
                                "at a time (--device {}={} makes them alike)",
                                node.name, node.device, kind, device.resource, node.device));
      }
      node.device = kind;
      if (++nics == 1) {
        host = topology.add_host(node.name);
      }
      const auto at = pf_switch(planned.node, device.pf);
      if (!at) {
        return tl::unexpected(at.error());
      }
      topology.connect(host, *at, cable);
    }
    if (nics > kMaxNics) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("pod '{}' has {} devices; a host has at most {} NICs", node.name,
                              nics, kMaxNics));
    }
    node.has_nics = nics > 0;
    hosts_ += node.has_nics ? 1 : 0;
    return {};
  }

  // The switch that stands for a physical function of a node; made when the first pod needs it.
  Result<fabric::NodeId> pf_switch(const std::string& node, const std::string& pf) {
    if (pf.empty()) {
      return fabric_;
    }
    const std::string name = node + "_" + pf;
    if (!fabric::is_node_name(name)) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("NIC '{}' of node '{}': their names are too long together, or have "
                              "letters that a network cannot have",
                              pf, node));
    }
    fabric::Topology& topology = lab_.file.topology;
    if (const auto there = topology.find(name); there != fabric::kNone) {
      return there;
    }
    const fabric::NodeId at = topology.add_switch(name, 1);
    topology.connect(at, fabric_, fabric::LinkProperties{.rate = options_.rate});
    return at;
  }

  // Names of services lead to the first of their pods; each pod is also POD.SERVICE.
  void add_services() {
    for (const k8s::PodService& service : plan_.objects.services) {
      bool is_first = true;
      for (const PlannedPod& planned : plan_.pods) {
        const Pod& pod = *planned.pod;
        std::string missing;
        const auto node = names_.find(&pod);
        if (node == names_.end() || pod.name_space != service.name_space ||
            !k8s::selects(service.selector, pod.labels, missing)) {
          continue;
        }
        std::vector<std::string> fronts{pod.name + "."};
        // A cluster would spread them; one address is enough for a rehearsal.
        if (std::exchange(is_first, false)) {
          fronts.emplace_back();
        }
        for (const std::string& front : fronts) {
          // As a pod's resolver finds a service: by itself, with its namespace, and by the
          // cluster's whole domain.
          for (const char* behind : {"", ".svc", ".svc.cluster.local"}) {
            const std::string domain =
                *behind == '\0' ? std::string() : "." + service.name_space + behind;
            lab_.file.aliases.emplace_back(front + service.name + domain, node->second);
          }
          lab_.file.aliases.emplace_back(front + service.name + "." + service.name_space,
                                         node->second);
        }
      }
    }
    // A pod is called by its own name first.
    std::erase_if(lab_.file.aliases, [&](const auto& alias) {
      return std::ranges::find(lab_.file.nodes, alias.first, &LabNode::name) !=
             lab_.file.nodes.end();
    });
  }

  const k8s::PodPlan& plan_;
  const PodLabOptions& options_;
  PodLab lab_;
  MoreNetworks networks_;
  std::map<const Pod*, std::string> names_;  // of those that start
  std::set<std::string> taken_;              // by hosts and containers
  fabric::NodeId fabric_ = fabric::kNone;
  std::size_t hosts_ = 0;
};

}  // namespace

std::string device_of_resource(const std::string& resource) {
  return resource.ends_with("/efa") ? "efa" : "rxe";
}

Result<PodLab> make_pod_lab(const k8s::PodPlan& plan, const PodLabOptions& options) {
  return PodLabMaker(plan, options).make();
}

}  // namespace weft::labs
