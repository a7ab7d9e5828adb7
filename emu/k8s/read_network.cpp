// Owns reading networks: those of the SR-IOV operator, and NetworkAttachmentDefinitions.
//
// The first are objects from which the operator makes the second. In both, what hands out addresses
// (ipam) is JSON in a text, so that no schema checks it; a cluster would tell the mistake only when
// a pod does not start.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "emu/k8s/objects.hpp"

namespace weft::k8s {
namespace {

using nlohmann::json;

// All fields of the two kinds' specs.
const std::vector<std::string> kIbKeys{"resourceName", "networkNamespace", "ipam",
                                       "linkState",    "capabilities",     "metaPlugins"};
const std::vector<std::string> kEthernetKeys{
    "resourceName", "networkNamespace", "ipam",      "linkState", "capabilities", "metaPlugins",
    "vlan",         "vlanQoS",          "vlanProto", "spoofChk",  "trust",        "minTxRate",
    "maxTxRate",    "logLevel",         "logFile"};
constexpr const char* kResourceAnnotation = "k8s.v1.cni.cncf.io/resourceName";

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Reads an ipam object, once; what is wrong with it becomes a finding at `place`.
class IpamReader {
 public:
  IpamReader(const std::string& title, const FilePlace& place, Findings& findings)
      : title_(title), place_(place), findings_(findings) {}

  Ipam read(const json& object) {
    ipam_.type = text_of(object, "type");
    if (ipam_.type == "whereabouts") {
      read_whereabouts(object);
    } else if (ipam_.type == "host-local") {
      read_host_local(object);
    } else if (ipam_.type == "static") {
      for (const json& address : list(object, "addresses")) {
        ipam_.fixed.push_back(address.is_object() ? text_of(address, "address") : "");
        if (!parse_subnet(ipam_.fixed.back())) {
          complain("has the static address '" + ipam_.fixed.back() + "'",
                   "ADDRESS/LENGTH, such as 10.0.0.7/24");
        }
      }
    } else if (ipam_.type.empty()) {
      complain("has an ipam without a type", "\"type\": \"whereabouts\", or another plugin");
    }
    return ipam_;
  }

 private:
  void complain(const std::string& what, const std::string& remedy) {
    findings_.error(place_, title_ + " " + what, remedy);
  }

  static json list(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_array() ? *found : json::array();
  }

  // Whereabouts gives an address of each range.
  void read_whereabouts(const json& object) {
    // The first range may stand beside the list of the others.
    if (object.contains("range") || list(object, "ipRanges").empty()) {
      read_whereabouts_range(object);
    }
    for (const json& range : list(object, "ipRanges")) {
      if (range.is_object()) {
        read_whereabouts_range(range);
      }
    }
    // Overlaps are looked for unless this is false, as the plugin itself has it.
    const auto apart = object.find("enable_overlapping_ranges");
    ipam_.is_account_shared = apart == object.end() || *apart != false;
    ipam_.account = text_of(object, "network_name");
  }

  // "SUBNET" or "START-END/LENGTH", with range_start, range_end and exclude beside it.
  void read_whereabouts_range(const json& object) {
    std::string range = text_of(object, "range");
    std::string start = text_of(object, "range_start");
    std::string end = text_of(object, "range_end");
    const std::size_t dash = range.find('-');
    const std::size_t slash = range.find('/', dash == std::string::npos ? 0 : dash);
    if (dash != std::string::npos && slash != std::string::npos) {
      start = range.substr(0, dash);
      end = range.substr(dash + 1, slash - dash - 1);
      range = start + range.substr(slash);
    }
    if (AddressPool* const pool = make_pool(range, start, end)) {
      exclude(object, *pool);
    }
  }

  // Of each set an address, from its first range. The gateway is nobody's, also where it is not
  // said: then it is the first one.
  void read_host_local(const json& object) {
    ipam_.per_node = true;
    std::vector<json> ranges;
    for (const json& set : list(object, "ranges")) {
      if (set.is_array() && !set.empty() && set.front().is_object()) {
        ranges.push_back(set.front());
      }
    }
    // The older form has one range, beside the type.
    if (ranges.empty() || object.contains("subnet")) {
      ranges.insert(ranges.begin(), object);
    }
    for (const json& range : ranges) {
      const std::string subnet = text_of(range, "subnet");
      AddressPool* const pool =
          make_pool(subnet, text_of(range, "rangeStart"), text_of(range, "rangeEnd"));
      if (pool != nullptr) {
        IpAddress gateway = parse_subnet(subnet)->first;
        ++gateway.number;
        const auto said = parse_address(text_of(range, "gateway"));
        pool->exclude(said.value_or(gateway), said.value_or(gateway));
      }
    }
  }

  // Null, and a finding, where it is none.
  AddressPool* make_pool(const std::string& range, const std::string& start,
                         const std::string& end) {
    const auto subnet = parse_subnet(range);
    if (!subnet) {
      complain(range.empty() ? "has an ipam without a range" : "has the range '" + range + "'",
               "ADDRESS/LENGTH, such as 192.168.100.0/24");
      return nullptr;
    }
    std::optional<IpAddress> bounds[2];
    for (const auto& [text, bound] : {std::pair(&start, &bounds[0]), std::pair(&end, &bounds[1])}) {
      if (*bound = parse_address(*text); !*bound && !text->empty()) {
        complain("has a range that begins or ends at '" + *text + "'", "an address");
        return nullptr;
      }
    }
    auto pool = AddressPool::of(*subnet, bounds[0], bounds[1]);
    if (!pool) {
      complain("has a range that is none: " + pool.error().message, "start and end within it");
      return nullptr;
    }
    return &ipam_.pools.emplace_back(std::move(*pool));
  }

  void exclude(const json& object, AddressPool& pool) {
    for (const json& item : list(object, "exclude")) {
      const std::string text = item.is_string() ? item.get<std::string>() : "";
      const auto one = parse_address(text);
      const auto subnet = one ? Subnet{*one, *one, 0} : parse_subnet(text).value_or(Subnet{});
      if (!one && !parse_subnet(text)) {
        complain("excludes '" + text + "'", "an address or ADDRESS/LENGTH");
      } else {
        pool.exclude(subnet.first, subnet.last);
      }
    }
  }

  const std::string& title_;
  const FilePlace& place_;
  Findings& findings_;
  Ipam ipam_;
};

// JSON in a text of the manifest. Null, and a finding, where it is none.
json parse_json(const YAML::Node& node, const std::string& what, const FilePlace& place,
                Findings& findings) {
  json object = json::parse(k8s::text_of(node), nullptr, false);
  if (!object.is_object()) {
    findings.error(place, what + " is not valid JSON",
                   "an object in braces, with all keys and texts in double quotes, and no comma "
                   "behind the last one");
    return {};
  }
  return object;
}

}  // namespace

void read_operator_network(const Manifest& manifest, const ReadOptions& options, Objects& objects,
                           Findings& findings) {
  const YAML::Node spec = value_of(manifest.root, "spec");
  check_keys(manifest, spec, manifest.kind == "SriovIBNetwork" ? kIbKeys : kEthernetKeys, findings);
  PodNetwork network{manifest.place,
                     manifest.kind,
                     manifest.name,
                     k8s::text_of(value_of(spec, "networkNamespace"), manifest.name_space),
                     k8s::text_of(value_of(spec, "resourceName")),
                     {}};
  if (network.resource.empty()) {
    findings.error(place_of(manifest, spec), network.title() + " has no resourceName",
                   "that of a SriovNetworkNodePolicy, without prefix");
    return;
  }
  if (network.resource.find('/') != std::string::npos) {
    findings.error(place_of(manifest, value_of(spec, "resourceName")),
                   network.title() + " names the resource with its prefix",
                   "resourceName: " + network.resource.substr(network.resource.find('/') + 1) +
                       " (the operator puts the prefix in front)");
    // Read on as it was meant, so that the pods are not complained of as well.
    network.resource = network.resource.substr(network.resource.find('/') + 1);
  }
  // As the device plugin announces it, and as pods have to ask for it.
  network.resource = options.prefix + "/" + network.resource;
  if (const YAML::Node ipam = value_of(spec, "ipam"); ipam.IsDefined() && !ipam.IsNull()) {
    const FilePlace place = place_of(manifest, ipam);
    const json object = parse_json(ipam, network.title() + ": ipam", place, findings);
    if (object.is_object() && !object.empty()) {
      network.ipam = IpamReader(network.title(), place, findings).read(object);
    }
  }
  objects.networks.push_back(std::move(network));
}

void read_attachment_definition(const Manifest& manifest, Objects& objects, Findings& findings) {
  const YAML::Node metadata = value_of(manifest.root, "metadata");
  const YAML::Node annotations = value_of(metadata, "annotations");
  PodNetwork network{manifest.place,
                     manifest.kind,
                     manifest.name,
                     manifest.name_space,
                     k8s::text_of(value_of(annotations, kResourceAnnotation)),
                     {}};
  const YAML::Node config = value_of(value_of(manifest.root, "spec"), "config");
  if (config.IsDefined() && !k8s::text_of(config).empty()) {
    const FilePlace place = place_of(manifest, config);
    const json object = parse_json(config, network.title() + ": config", place, findings);
    const json* plugin = &object;
    // A list of plugins is a chain, of which the first one makes the interface.
    if (const auto plugins = object.find("plugins");
        object.is_object() && plugins != object.end() && plugins->is_array() && !plugins->empty()) {
      plugin = &plugins->front();
    }
    if (plugin->is_object()) {
      const auto ipam = plugin->find("ipam");
      if (ipam != plugin->end() && ipam->is_object() && !ipam->empty()) {
        network.ipam = IpamReader(network.title(), place, findings).read(*ipam);
      }
      if (text_of(*plugin, "type").ends_with("sriov") && network.resource.empty()) {
        findings.error(
            place_of(manifest, metadata),
            network.title() + " is of type sriov and has no annotation " + kResourceAnnotation,
            "metadata.annotations: {" + std::string(kResourceAnnotation) +
                ": PREFIX/RESOURCE}, else no device is given to it");
      }
    }
  }
  objects.networks.push_back(std::move(network));
}

}  // namespace weft::k8s
