// Owns the files by which container engines learn of emulated NICs: Container Device Interface.
#pragma once

#include <string>
#include <vector>

#include "emu/launch/shared_folder.hpp"
#include "srd/base/result.hpp"

namespace weft::launch {

// Where engines look for files that programs write while they run.
inline constexpr const char* kCdiFolder = "/var/run/cdi";

// The text of a file of kind weft.dev/KIND. A device is an environment and the mount of `folder`;
// its name has `prefix` in front.
[[nodiscard]] std::string cdi_text(const std::string& kind, const std::string& prefix,
                                   const std::string& folder,
                                   const std::vector<ContainerDevice>& devices);

// Furnishes the shared folder of the network `name` and writes a file for each of the kinds into
// `output`; `names` as parse_device_kind() takes them. Returns their paths, of which the network's
// directory keeps a list.
[[nodiscard]] Result<std::vector<std::string>> write_cdi(const std::string& directory,
                                                         const std::string& name,
                                                         const std::vector<std::string>& kinds,
                                                         const std::string& output,
                                                         const std::string& names = "");

// Removes the files on the list.
void remove_cdi(const std::string& directory);

}  // namespace weft::launch
