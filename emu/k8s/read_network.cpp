// Owns reading networks: those of the SR-IOV operator, and NetworkAttachmentDefinitions.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "emu/k8s/objects.hpp"

namespace weft::k8s {
namespace {

using nlohmann::json;

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

// Reads what hands out addresses; what is wrong goes to `complain`.
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

  // "SUBNET" or "START-END/LENGTH", with range_start, range_end and exclude beside it.
  void read_whereabouts(const json& object) {
    std::string range = text_of(object, "range");
    const json several = list(object, "ipRanges");
    if (range.empty() && !several.empty() && several.front().is_object()) {
      range = text_of(several.front(), "range");
    }
    std::string start = text_of(object, "range_start");
    if (const std::size_t dash = range.find('-'); dash != std::string::npos) {
      start = range.substr(0, dash);
      range = range.substr(dash + 1);
      const std::size_t slash = range.find('/');
      const std::string end = range.substr(0, slash);
      if (slash != std::string::npos) {
        range = start + range.substr(slash);
        make_pool(range, start, end);
        exclude(object);
        return;
      }
    }
    make_pool(range, start, text_of(object, "range_end"));
    exclude(object);
  }

  void read_host_local(const json& object) {
    ipam_.per_node = true;
    json range = object;
    const json ranges = list(object, "ranges");
    if (!ranges.empty() && ranges.front().is_array() && !ranges.front().empty() &&
        ranges.front().front().is_object()) {
      range = ranges.front().front();
    }
    make_pool(text_of(range, "subnet"), text_of(range, "rangeStart"), text_of(range, "rangeEnd"));
  }

  void make_pool(const std::string& range, const std::string& start, const std::string& end) {
    const auto subnet = parse_subnet(range);
    if (!subnet) {
      complain(range.empty() ? "has an ipam without a range" : "has the range '" + range + "'",
               "ADDRESS/LENGTH, such as 192.168.100.0/24");
      return;
    }
    std::optional<IpAddress> bounds[2];
    for (const auto& [text, bound] : {std::pair(&start, &bounds[0]), std::pair(&end, &bounds[1])}) {
      if (*bound = parse_address(*text); !*bound && !text->empty()) {
        complain("has a range that begins or ends at '" + *text + "'", "an address");
        return;
      }
    }
    auto pool = AddressPool::of(*subnet, bounds[0], bounds[1]);
    if (!pool) {
      complain("has a range that is none: " + pool.error().message, "start and end within it");
      return;
    }
    ipam_.pool.emplace(std::move(*pool));
  }

  void exclude(const json& object) {
    for (const json& item : list(object, "exclude")) {
      const std::string text = item.is_string() ? item.get<std::string>() : "";
      const auto one = parse_address(text);
      const auto subnet = one ? Subnet{*one, *one, 0} : parse_subnet(text).value_or(Subnet{});
      if (!one && !parse_subnet(text)) {
        complain("excludes '" + text + "'", "an address or ADDRESS/LENGTH");
      } else if (ipam_.pool) {
        ipam_.pool->exclude(subnet.first, subnet.last);
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
    findings.error(place_of(manifest.place.file, spec), network.title() + " has no resourceName",
                   "that of a SriovNetworkNodePolicy, without prefix");
    return;
  }
  if (network.resource.find('/') != std::string::npos) {
    findings.error(place_of(manifest.place.file, value_of(spec, "resourceName")),
                   network.title() + " names the resource with its prefix",
                   "resourceName: " + network.resource.substr(network.resource.find('/') + 1) +
                       " (the operator puts the prefix in front)");
    network.resource = network.resource.substr(network.resource.find('/') + 1);
  }
  network.resource = options.prefix + "/" + network.resource;
  if (const YAML::Node ipam = value_of(spec, "ipam"); ipam.IsDefined() && !ipam.IsNull()) {
    const FilePlace place = place_of(manifest.place.file, ipam);
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
    const FilePlace place = place_of(manifest.place.file, config);
    const json object = parse_json(config, network.title() + ": config", place, findings);
    const json* plugin = &object;
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
            place_of(manifest.place.file, metadata),
            network.title() + " is of type sriov and has no annotation " + kResourceAnnotation,
            "metadata.annotations: {" + std::string(kResourceAnnotation) +
                ": PREFIX/RESOURCE}, else no device is given to it");
      }
    }
  }
  objects.networks.push_back(std::move(network));
}

}  // namespace weft::k8s
