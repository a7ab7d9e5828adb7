// Owns what containers find in the folder of a network that they mount.
#pragma once

#include <string>
#include <vector>

#include "emu/launch/host_environment.hpp"
#include "srd/base/result.hpp"

namespace weft::launch {

// Where the folder is to appear in a container.
inline constexpr const char* kMountPoint = "/run/weft";

// What a container is given to be on a host.
struct ContainerDevice {
  std::string name;
  Environment environment;
};

// The folder of the network whose weftd has `directory`. Beside the socket, which is weftd's, it
// holds the preload library and device trees, all for everybody to read.
[[nodiscard]] std::string shared_folder(const std::string& directory);

// Puts the library and the trees of that kind of device into the folder. Returns the devices: for
// each host HOST with its first NIC, HOST-all-rails with all of them; and "any" host.
[[nodiscard]] Result<std::vector<ContainerDevice>> furnish_shared_folder(
    const std::string& directory, const devices::Profile& kind);

// One more device: these NICs of a host, by their numbers. The folder has been furnished.
[[nodiscard]] Result<ContainerDevice> share_nics(const std::string& directory,
                                                 const devices::Profile& kind,
                                                 const std::string& host,
                                                 const std::vector<std::size_t>& numbers);

}  // namespace weft::launch
