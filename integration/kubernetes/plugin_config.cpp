// Owns reading the device plugin's YAML.
#include "integration/kubernetes/plugin_config.hpp"

#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "emu/fabric/yaml_reader.hpp"

namespace weft::kubernetes {
namespace {

constexpr std::int64_t kMaxShares = 10'000;  // each is in every list that the kubelet is sent
constexpr std::size_t kMaxNics = 16;         // of a host, as `weft up --nics` has them

constexpr std::string_view kSmall = "abcdefghijklmnopqrstuvwxyz0123456789";
constexpr std::string_view kLarge = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

// Whether the text is not empty, begins and ends with one of `letters`, and has only those and
// `inside` in between.
bool consists_of(std::string_view text, const std::string& letters, const std::string& inside) {
  return !text.empty() && text.find_first_not_of(letters + inside) == std::string_view::npos &&
         letters.find(text.front()) != std::string::npos &&
         letters.find(text.back()) != std::string::npos;
}

// Whether it is DOMAIN/NAME, as the kubelet wants it of devices. Domains have no underscores, so
// replacing the slash by one (socket_of()) never makes the same socket of two names.
bool is_resource_name(std::string_view name) {
  // Of names in DNS, and of labels, by Kubernetes' rules.
  constexpr std::size_t kMaxDomain = 253;
  constexpr std::size_t kMaxName = 63;
  const std::string_view domain = name.substr(0, name.find('/'));
  const std::string_view rest = name.substr(std::min(domain.size() + 1, name.size()));
  const std::string small(kSmall);
  return domain.size() <= kMaxDomain && rest.size() <= kMaxName &&
         consists_of(domain, small, "-.") && consists_of(rest, small + std::string(kLarge), "-._");
}

NodeResource read_resource(fabric::YamlFile& file, const YAML::Node& node,
                           const std::string& path) {
  fabric::YamlMap map(file, node, path);
  NodeResource resource;
  map.read("name", resource.name);
  if (!is_resource_name(resource.name)) {
    map.fail("name", "expected DOMAIN/NAME, such as vpc.amazonaws.com/efa");
  }
  map.read("device", resource.device);
  map.read("shares", resource.shares, 0, kMaxShares);
  map.each("nics", [&](const YAML::Node& item, const std::string& item_path) {
    std::size_t nic = 0;
    if (!item.IsScalar() || !YAML::convert<std::size_t>::decode(item, nic) || nic >= kMaxNics ||
        std::ranges::find(resource.nics, nic) != resource.nics.end()) {
      file.fail_at(item, item_path, "expected the number of a NIC, from 0, each once");
    }
    resource.nics.push_back(nic);
  });
  map.finish();
  return resource;
}

}  // namespace

// Names of resources have a slash.
std::string socket_of(const std::string& folder, std::string resource) {
  std::ranges::replace(resource, '/', '_');
  return folder + "/weft-" + resource + ".sock";
}

Result<PluginConfig> read_plugin_config(const std::string& file_name, const std::string& text) {
  fabric::YamlFile file(file_name);
  const YAML::Node root = file.load(text);
  fabric::YamlMap map(file, root, "");
  PluginConfig config;
  map.read("kubelet", config.folder);
  map.read("network", config.network);
  map.read("host", config.host);
  map.each("resources", [&](const YAML::Node& node, const std::string& path) {
    NodeResource resource = read_resource(file, node, path);
    if (std::ranges::find(config.resources, resource.name, &NodeResource::name) !=
        config.resources.end()) {
      file.fail_at(node, path, "the resource '" + resource.name + "' is here a second time");
    }
    config.resources.push_back(std::move(resource));
  });
  map.finish();
  for (const NodeResource& resource : config.resources) {
    // The draft name, under which the socket is made, has to fit as well.
    if (const std::string path = socket_of(config.folder, resource.name);
        std::max(path.size(), config.folder.size() + std::strlen(kDraftName) + 1) >=
        sizeof sockaddr_un{}.sun_path) {
      map.fail_here("'" + path + "' is too long for a socket: a shorter 'kubelet' or resource");
    }
  }
  if (config.resources.empty()) {
    map.fail_here("expected 'resources:', a list of at least one with its 'name'");
  }
  if (file.failed()) {
    return tl::unexpected(file.error());
  }
  return config;
}

}  // namespace weft::kubernetes
