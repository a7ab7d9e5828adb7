// Owns the emulated /sys and /dev of a host: real files and relative links below a folder of the
// run.
#pragma once

#include <span>
#include <string>

#include "emu/devices/personality.hpp"
#include "srd/base/result.hpp"

namespace weft::devices {

// Makes <root>/sys, <root>/dev and one <root>/nic<index> per NIC. They are of that kind, unless
// they say that they are of another registered one. The folder must exist. The text in nic<index>
// is what a process reads to bring the NIC up, so that a tree describes its devices completely.
// After an error the folder holds a part of it.
[[nodiscard]] Result<void> write_device_tree(const std::string& root, const Personality& kind,
                                             std::span<const kernel::NicDescription> nics);

}  // namespace weft::devices
