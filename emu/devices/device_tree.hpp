// Owns the emulated /sys and /dev of a host: real files and relative links below a folder of the
// run.
#pragma once

#include <span>
#include <string>

#include "emu/devices/personality.hpp"
#include "srd/base/result.hpp"

namespace weft::devices {

// Makes <root>/sys, <root>/dev and one <root>/nic<index> per NIC, all of that kind. The folder must
// exist.
[[nodiscard]] Result<void> write_device_tree(const std::string& root, const Personality& kind,
                                             std::span<const kernel::NicDescription> nics);

}  // namespace weft::devices
