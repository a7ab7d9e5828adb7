// Owns what a program needs to run on an emulated host: the host's devices, and the environment
// variables that lead to them.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emu/devices/profiles.hpp"
#include "srd/base/result.hpp"

namespace weft::launch {

// What the devices of all hosts are; none: programs use the transport library by themselves.
using DeviceKind = std::optional<devices::Profile>;
// What parse_device_kind() takes, for help texts and errors.
[[nodiscard]] std::string known_devices();
// What --names takes, for help texts.
inline constexpr const char* kAboutNames =
    "What the devices of a host are called: mlx5_{n}, mlx5_{n+16}, or a list with commas";
// What a command gives to hosts that is told nothing.
[[nodiscard]] std::string default_device();
// Notes in the directory of a weftd what its network was made for, as parse_device_kind() takes it.
[[nodiscard]] Result<void> note_device(const std::string& directory, const std::string& name,
                                       const std::string& names = "");
// "KIND", "KIND:PROFILE" (a built-in one or a *.yaml file), several of these with commas (NICs take
// turns), or "none". `names` are the devices', as DeviceNames reads them; none are those of the
// kind.
[[nodiscard]] Result<DeviceKind> parse_device_kind(const std::string& name,
                                                   const std::string& names = "");
// The same for a network that is up: without a `name` it is what has been noted; a network that was
// started without a word about it has the default.
[[nodiscard]] Result<DeviceKind> device_of_network(const std::string& directory,
                                                   const std::string& name,
                                                   const std::string& names = "");

// The payload in bytes that weftd's network must carry: the largest send of the emulated devices at
// least. 0, without devices: weftd decides.
[[nodiscard]] std::size_t payload_of(const DeviceKind& kind);

// How many NICs a host needs so that there is one of each.
[[nodiscard]] std::size_t least_nics(const DeviceKind& kind);

using Environment = std::vector<std::pair<std::string, std::string>>;

// What programs need in their environment for the devices of these kinds; only defaults.
[[nodiscard]] Environment environment_of(const devices::Profile& kind);

// Where a weftd's directory holds device trees. Trees left by an earlier weftd may describe other
// NICs.
inline constexpr const char* kDevicesFolder = "devices";

// The kinds of devices there are.
[[nodiscard]] std::vector<std::string> kinds_of_devices();

// Puts the finished tree at `draft`, a folder, in its place under that name.
using PlaceTree = std::function<Result<void>(const std::string& draft, const std::string& name)>;

// Writes the tree of these NICs of that host, by their numbers (none: all), into a draft in
// `directory`, a weftd's, and has `place` move it. Returns its name, which equal trees share.
// `is_there` says whether that need not be done.
[[nodiscard]] Result<std::string> write_host_devices(
    const std::string& directory, const std::string& host, const devices::Profile& kind,
    const std::vector<std::size_t>& numbers,
    const std::function<bool(const std::string& name)>& is_there, const PlaceTree& place);

// Writes the tree of that host's devices below `directory` (a weftd's), unless an equal one is
// there, and returns the variables that programs on it need.
[[nodiscard]] Result<Environment> equip_host(const std::string& directory, const std::string& host,
                                             const DeviceKind& kind);

// Replaces {h1.ip}, {h1.gid} and {h1.dev} in a word of a command line. Braces around anything but a
// host's name, a dot and one of these three are left alone.
[[nodiscard]] Result<std::string> fill_placeholders(const std::string& directory,
                                                    const std::string& word,
                                                    const DeviceKind& kind);

}  // namespace weft::launch
