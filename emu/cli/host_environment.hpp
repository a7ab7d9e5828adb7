// Owns what a program needs around it to live on an emulated host: its devices and its environment.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "srd/base/result.hpp"

namespace weft::cli {

enum class DeviceKind { none, efa };
// "efa", or "none" for programs that use the transport library by themselves.
[[nodiscard]] Result<DeviceKind> parse_device_kind(const std::string& name);

// The largest send of the emulated devices, which weftd's network must carry.
[[nodiscard]] std::size_t payload_of(DeviceKind kind);

using Environment = std::vector<std::pair<std::string, std::string>>;

// Writes the device tree of that host below `directory` (a weftd's), once, and returns the
// variables that programs on it need.
[[nodiscard]] Result<Environment> equip_host(const std::string& directory, const std::string& host,
                                             DeviceKind kind);

// What stands for {h1.ip}, {h1.gid} and {h1.dev} in command lines.
[[nodiscard]] Result<std::string> fill_placeholders(const std::string& directory,
                                                    const std::string& word, DeviceKind kind);

}  // namespace weft::cli
