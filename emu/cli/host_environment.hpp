// Owns what a program needs around it to live on an emulated host: its devices and its environment.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "emu/kernel/nic_description.hpp"
#include "srd/base/result.hpp"

namespace weft::cli {

struct DeviceKind {
  bool emulated = false;                // false: programs use the transport library by themselves
  emu::kernel::NicDescription profile;  // everything about a device but its name and address
};
// "efa", "efa:PROFILE" (a built-in one or a *.yaml file), or "none".
[[nodiscard]] Result<DeviceKind> parse_device_kind(const std::string& name);

// The largest send of the emulated devices, which weftd's network must carry.
[[nodiscard]] std::size_t payload_of(const DeviceKind& kind);

using Environment = std::vector<std::pair<std::string, std::string>>;

// Writes the device tree of that host below `directory` (a weftd's), once, and returns the
// variables that programs on it need.
[[nodiscard]] Result<Environment> equip_host(const std::string& directory, const std::string& host,
                                             const DeviceKind& kind);

// What stands for {h1.ip}, {h1.gid} and {h1.dev} in command lines.
[[nodiscard]] Result<std::string> fill_placeholders(const std::string& directory,
                                                    const std::string& word,
                                                    const DeviceKind& kind);

}  // namespace weft::cli
