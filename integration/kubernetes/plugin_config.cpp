// Owns reading the device plugin's YAML.
#include "integration/kubernetes/plugin_config.hpp"

#include <algorithm>

#include "emu/fabric/yaml_reader.hpp"

namespace weft::kubernetes {
namespace {

constexpr std::int64_t kMaxShares = 10'000;
constexpr std::size_t kMaxNics = 16;

// DOMAIN/NAME, as the kubelet wants it of devices.
bool is_resource_name(const std::string& name) {
  const std::size_t slash = name.find('/');
  constexpr auto is_word = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return slash != std::string::npos && slash != 0 && slash + 1 < name.size() &&
         name.size() <= 200 &&
         std::ranges::all_of(name.substr(0, slash) + name.substr(slash + 1), is_word);
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
  if (config.resources.empty()) {
    map.fail_here("expected 'resources:', a list of at least one with its 'name'");
  }
  if (file.failed()) {
    return tl::unexpected(file.error());
  }
  return config;
}

}  // namespace weft::kubernetes
