// Owns what is read from manifests: those of the SR-IOV operator, of networks, and of what makes
// pods. Field names are those of the public operators; docs/kubernetes.md lists them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emu/k8s/address_pool.hpp"
#include "emu/k8s/manifest.hpp"
#include "emu/k8s/pod_budget.hpp"
#include "emu/k8s/pod_container.hpp"

namespace weft::k8s {

using Labels = std::map<std::string, std::string>;

// A physical function as a policy names it: "ens1f0", or "ens1f0#2-5" for some of its VFs.
struct PfName {
  std::string pf;
  std::optional<std::pair<unsigned, unsigned>> vfs;
  FilePlace place;
};

// SriovNetworkNodePolicy: on which nodes which NICs are cut into virtual functions.
struct Policy {
  FilePlace place;
  std::string name;
  std::string resource;  // without the prefix
  Labels node_selector;
  unsigned priority = 99;  // 0 wins
  unsigned num_vfs = 0;
  std::string vendor;
  std::string device_id;
  std::vector<PfName> pf_names;
  std::vector<std::string> root_devices;

  [[nodiscard]] std::string title() const { return "SriovNetworkNodePolicy " + name; }
};

// What a network's attachments get as addresses.
struct Ipam {
  std::string type;                // empty: none
  std::vector<AddressPool> pools;  // of those that hand out ranges: an address of each
  bool per_node = false;           // host-local: each node hands out the same ones
  std::vector<std::string> fixed;  // static: the same for everybody
  // whereabouts: of networks with the same account nobody gets an address that another one has.
  std::string account;
  bool is_account_shared = true;  // with ranges that are written differently
};

// A NetworkAttachmentDefinition: given, or made by the operator of a SriovNetwork or
// SriovIBNetwork.
struct PodNetwork {
  FilePlace place;
  std::string kind;
  std::string name;
  std::string name_space;  // where pods find it
  std::string resource;    // with the prefix; empty: it takes no device
  Ipam ipam;

  [[nodiscard]] std::string title() const { return kind + " " + name; }
};

// One network in a pod's annotation.
struct NetworkAttachment {
  std::string name;
  std::string name_space;
  std::string interface;               // empty: net1, net2, ...
  std::vector<std::string> addresses;  // asked for
};

// How many devices of a resource a pod asks for, and where it says so.
struct DeviceRequest {
  std::uint64_t count = 0;
  FilePlace place;
};

// One pod as its manifest or template describes it. Pods of one template are equal but for their
// names.
struct Pod {
  FilePlace place;
  std::string owner;  // "Job default/test", or the pod itself
  std::string name;
  std::string name_space;
  Labels node_selector;
  std::string node;                                // the only one that it may be on; empty: any
  bool on_each_node = false;                       // one for each node that it selects
  std::map<std::string, DeviceRequest> resources;  // of all its containers; devices only
  bool has_unread_request = false;                 // nobody knows what it needs: it does not start
  std::vector<NetworkAttachment> attachments;
  FilePlace annotation;
  Labels labels;
  std::vector<PodContainer> containers;
  std::vector<std::string> init_containers;  // their names
  std::vector<PodVolume> volumes;
  PodRestart restart = PodRestart::always;
  unsigned attempts = 0;  // how often it may begin again; 0: without an end

  [[nodiscard]] std::string title() const { return "Pod " + name_space + "/" + name; }
};

// What gives pods with these labels another name.
struct PodService {
  std::string name;
  std::string name_space;
  Labels selector;
};

// A NIC of a node, as SriovNetworkNodeState tells it. Empty texts: not known.
struct PhysicalFunction {
  std::string name;
  std::string vendor;
  std::string device_id;
  std::string root_device;
  unsigned max_vfs = 0;  // 0: not known
};

// A Node, with what a SriovNetworkNodeState says of its NICs.
struct ClusterNode {
  FilePlace place;
  std::string name;
  Labels labels;
  bool is_labelled = false;  // by a Node; what is known of its state only is labelled as selected
  bool has_state = false;
  std::vector<PhysicalFunction> pfs;
};

struct ReadOptions {
  std::string prefix = "openshift.io";  // of the operator's resources
  // The operator sees only what is in its own namespace.
  std::vector<std::string> operator_namespaces{
      "sriov-network-operator", "openshift-sriov-network-operator", "nvidia-network-operator"};
};

// Everything that was read, in the order of the files.
struct Objects {
  std::vector<Policy> policies;
  std::vector<PodNetwork> networks;
  std::vector<ClusterNode> nodes;
  std::vector<Pod> pods;
  PodBudget budget;  // of the pods that are copies
  std::vector<PodService> services;
};

// Objects of kinds that have nothing to do with devices are passed over.
[[nodiscard]] Objects read_objects(const std::vector<Manifest>& manifests,
                                   const ReadOptions& options, Findings& findings);

// --- Parts of it, by what they read.
void read_policy(const Manifest& manifest, Objects& objects, Findings& findings);
void read_operator_network(const Manifest& manifest, const ReadOptions& options, Objects& objects,
                           Findings& findings);
void read_attachment_definition(const Manifest& manifest, Objects& objects, Findings& findings);
void read_node(const Manifest& manifest, Objects& objects);
void read_node_state(const Manifest& manifest, Objects& objects);
// Whether it was a kind that makes pods.
[[nodiscard]] bool read_workload(const Manifest& manifest, Objects& objects, Findings& findings);

[[nodiscard]] PodContainer read_pod_container(const YAML::Node& node,
                                              const YAML::Node& pod_security);
[[nodiscard]] std::vector<PodVolume> read_pod_volumes(const YAML::Node& list);
void read_service(const Manifest& manifest, Objects& objects);

// Adds the finding that a plan has no room for as many pods (PodBudget).
void complain_of_crowd(const Pod& pod, Findings& findings);
// Complains of keys of `map` that are not among the known ones.
void check_keys(const Manifest& manifest, const YAML::Node& map,
                const std::vector<std::string>& known, Findings& findings);
[[nodiscard]] Labels read_labels(const YAML::Node& map);

}  // namespace weft::k8s
