// Owns the configuration of the device plugin: which resources a node has, and of what.
#pragma once

#include <string>
#include <vector>

#include "integration/kubernetes/inventory.hpp"
#include "srd/base/result.hpp"

namespace weft::kubernetes {

struct PluginConfig {
  std::string folder = "/var/lib/kubelet/device-plugins";  // of kubelet.sock
  std::string network = "default";                         // that `weft up` was told
  std::string host;                                        // empty: the network's first
  std::vector<NodeResource> resources;
};

// The name under which a socket is made, before it is renamed to its own; mkstemp() fills it in.
inline constexpr const char* kDraftName = "weft-XXXXXX";

// Where the kubelet finds that resource's plugin.
[[nodiscard]] std::string socket_of(const std::string& folder, std::string resource);

[[nodiscard]] Result<PluginConfig> read_plugin_config(const std::string& file_name,
                                                      const std::string& text);

}  // namespace weft::kubernetes
