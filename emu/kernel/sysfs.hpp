// Owns the emulated /sys and /dev: real files and relative links below a folder of the run.
#pragma once

#include <span>
#include <string>

#include "emu/kernel/nic_description.hpp"
#include "srd/base/result.hpp"

namespace weft::emu::kernel {

// Makes <root>/sys, <root>/dev and one <root>/nic<index> per NIC. The folder must exist.
[[nodiscard]] Result<void> write_device_tree(const std::string& root,
                                             std::span<const NicDescription> nics);

// What the tree says of the NIC's port. No error: readers of another user's tree cannot.
void write_port_state(const std::string& root, const NicDescription& nic, bool up);

// The device numbers that a character device file shows.
inline constexpr unsigned kUverbsMajor = 231;
inline constexpr unsigned kUverbsFirstMinor = 192;

// Our own PCI domain: it cannot clash with a device of the machine.
[[nodiscard]] std::string pci_address(const NicDescription& nic);

}  // namespace weft::emu::kernel
