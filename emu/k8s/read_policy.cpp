// Owns reading SriovNetworkNodePolicy.
//
// What the operator's webhook would refuse is a finding, and so is what it lets through and nobody
// can want (no NIC selected, RDMA with functions that vfio-pci takes away from the kernel).
#include <algorithm>

#include "emu/k8s/objects.hpp"

namespace weft::k8s {
namespace {

constexpr unsigned kMaxPriority = 99;
constexpr unsigned kMaxVfs = 256;  // that PCIe's numbers of one function leave room for

// All fields of the spec, and of its nicSelector.
const std::vector<std::string> kSpecKeys{
    "resourceName",    "nodeSelector",      "priority",    "mtu",
    "numVfs",          "nicSelector",       "deviceType",  "isRdma",
    "linkType",        "needVhostNet",      "eSwitchMode", "vdpaType",
    "excludeTopology", "externallyManaged", "bridge"};
const std::vector<std::string> kSelectorKeys{"vendor", "deviceID", "pfNames", "rootDevices",
                                             "netFilter"};

// Whether the device plugin takes that name: letters, digits and underscores.
bool is_resource_name(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// Reads one policy, once. Findings that the operator's webhook would refuse make read() return
// nothing.
class PolicyReader {
 public:
  PolicyReader(const Manifest& manifest, Findings& findings)
      : manifest_(manifest), findings_(findings), spec_(value_of(manifest.root, "spec")) {
    policy_.place = manifest.place;
    policy_.name = manifest.name;
  }

  // Nothing, where the operator's webhook would refuse it.
  std::optional<Policy> read() {
    check_keys(manifest_, spec_, kSpecKeys, findings_);
    read_resource();
    read_numbers();  // before the selector, whose ranges of VFs are held against their number
    policy_.node_selector = read_labels(value_of(spec_, "nodeSelector"));
    if (policy_.node_selector.empty()) {
      complain(spec_, "selects no nodes", "give nodeSelector a label that the nodes have");
    }
    const std::string type = text_of(value_of(spec_, "deviceType"), "netdevice");
    const bool for_vfio = type == "vfio-pci";
    if (type != "netdevice" && type != "vfio-pci") {
      complain(value_of(spec_, "deviceType"), "has the deviceType '" + type + "'",
               "netdevice (what RDMA needs) or vfio-pci");
    }
    if (for_vfio && text_of(value_of(spec_, "isRdma")) == "true") {
      complain(value_of(spec_, "isRdma"),
               "asks for RDMA of virtual functions that vfio-pci takes "
               "from the kernel",
               "deviceType: netdevice");
    }
    read_selector();
    return good_ ? std::optional(policy_) : std::nullopt;
  }

 private:
  // At the node, or at the whole policy where the node is what is missing.
  void complain(const YAML::Node& node, const std::string& what, const std::string& remedy) {
    const FilePlace at = node.IsDefined() ? place_of(manifest_, node) : manifest_.place;
    findings_.error(at, policy_.title() + " " + what, remedy);
    good_ = false;
  }

  void read_resource() {
    const YAML::Node node = value_of(spec_, "resourceName");
    policy_.resource = text_of(node);
    if (!is_resource_name(policy_.resource)) {
      complain(node.IsDefined() ? node : spec_,
               policy_.resource.empty() ? "has no resourceName"
                                        : "has the resourceName '" + policy_.resource + "'",
               "letters, digits and _, without the prefix that pods put in front of it");
    }
  }

  void read_numbers() {
    const YAML::Node vfs = value_of(spec_, "numVfs");
    const auto count = whole_number<unsigned>(text_of(vfs));
    if (!count || *count == 0 || *count > kMaxVfs) {
      complain(
          vfs.IsDefined() ? vfs : spec_,
          vfs.IsDefined() ? "has numVfs '" + text_of(vfs) + "'" : "has no numVfs",
          "how many virtual functions each NIC is to have, from 1 to " + std::to_string(kMaxVfs));
    }
    policy_.num_vfs = count.value_or(0);
    if (const YAML::Node node = value_of(spec_, "priority"); node.IsDefined()) {
      const auto priority = whole_number<unsigned>(text_of(node));
      if (!priority || *priority > kMaxPriority) {
        complain(node, "has the priority '" + text_of(node) + "'", "from 0, which wins, to 99");
      }
      policy_.priority = priority.value_or(kMaxPriority);
    }
  }

  void read_selector() {
    const YAML::Node selector = value_of(spec_, "nicSelector");
    check_keys(manifest_, selector, kSelectorKeys, findings_);
    policy_.vendor = text_of(value_of(selector, "vendor"));
    policy_.device_id = text_of(value_of(selector, "deviceID"));
    for (const YAML::Node& device : list(selector, "rootDevices")) {
      policy_.root_devices.push_back(text_of(device));
    }
    for (const YAML::Node& name : list(selector, "pfNames")) {
      read_pf_name(name);
    }
    if (policy_.vendor.empty() && policy_.device_id.empty() && policy_.pf_names.empty() &&
        policy_.root_devices.empty() && text_of(value_of(selector, "netFilter")).empty()) {
      complain(selector.IsDefined() ? selector : spec_, "selects no NIC",
               "give nicSelector a vendor, deviceID, pfNames, rootDevices or netFilter");
    }
  }

  static YAML::Node list(const YAML::Node& map, const char* key) {
    const YAML::Node node = value_of(map, key);
    return node.IsDefined() && node.IsSequence() ? node : YAML::Node(YAML::NodeType::Sequence);
  }

  // NAME, or NAME#FIRST-LAST: by such ranges several policies share the VFs of one NIC.
  void read_pf_name(const YAML::Node& node) {
    const std::string text = text_of(node);
    const std::size_t hash = text.find('#');
    PfName name{text.substr(0, hash), std::nullopt, place_of(manifest_, node)};
    if (hash != std::string::npos) {
      const std::string range = text.substr(hash + 1);
      const std::size_t dash = range.find('-');
      const auto first = whole_number<unsigned>(range.substr(0, dash));
      const auto last =
          dash == std::string::npos ? std::nullopt : whole_number<unsigned>(range.substr(dash + 1));
      if (!first || !last || *first > *last) {
        complain(node, "has the pfName '" + text + "'", "NAME, or NAME#FIRST-LAST for some VFs");
        return;
      }
      if (*last >= policy_.num_vfs) {
        complain(node,
                 "takes the VFs " + range + " of '" + name.pf + "', which has " +
                     std::to_string(policy_.num_vfs) + " (numVfs)",
                 "VFs are counted from 0: raise numVfs to " + std::to_string(*last + 1) +
                     ", or end the range at " +
                     std::to_string(policy_.num_vfs == 0 ? 0 : policy_.num_vfs - 1));
        return;
      }
      name.vfs = std::pair(*first, *last);
    }
    policy_.pf_names.push_back(name);
  }

  const Manifest& manifest_;
  Findings& findings_;
  YAML::Node spec_;
  Policy policy_;
  bool good_ = true;
};

}  // namespace

void read_policy(const Manifest& manifest, Objects& objects, Findings& findings) {
  if (auto policy = PolicyReader(manifest, findings).read()) {
    objects.policies.push_back(std::move(*policy));
  }
}

}  // namespace weft::k8s
