// Owns the part of the emulated /sys and /dev that is the same for every kind of RDMA device.
#pragma once

#include <filesystem>
#include <string>

#include "emu/kernel/nic_description.hpp"
#include "emu/kernel/sysfs/tree_writer.hpp"

namespace weft::kernel {

// The device numbers that a character device file shows.
inline constexpr unsigned kUverbsMajor = 231;
inline constexpr unsigned kUverbsFirstMinor = 192;
inline constexpr unsigned kUmadFirstMinor = 0;
inline constexpr unsigned kMiscMajor = 10;
inline constexpr unsigned kConnectionsMinor = 122;  // any free one, in a real kernel

// The files that also exist on a machine without RDMA devices.
void write_classes(TreeWriter& tree);
// Those of connection management, and of management datagrams.
void write_connections(TreeWriter& tree);
// The device file of the datagrams of such a NIC, and its entry in their class. There is no issmN:
// a RoCE port has no subnet manager.
void write_datagrams(TreeWriter& tree, const NicDescription& nic,
                     const std::filesystem::path& device);

// The device file and the entries of the classes, for a NIC whose own folder is `device` (below
// sys/devices) and holds infiniband/<name>.
void write_class_entries(TreeWriter& tree, const NicDescription& nic,
                         const std::filesystem::path& device);

// The files `state` and `phys_state` of the folder of a port.
void write_link_state(TreeWriter& tree, const std::filesystem::path& port, bool up);

// Updates the same files for the NIC's only port in an existing tree.
class PortStateFiles {
 public:
  PortStateFiles(const std::string& root, const NicDescription& nic);
  // Allocates nothing. Errors are ignored: a process of another user may not write to the tree.
  void write(bool up) const;

 private:
  std::string state_;
  std::string phys_state_;
};

}  // namespace weft::kernel
