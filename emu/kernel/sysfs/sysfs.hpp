// Owns what the emulated /sys and /dev say of every RDMA device, whatever its kind.
#pragma once

#include <filesystem>
#include <string>

#include "emu/kernel/nic_description.hpp"
#include "emu/kernel/sysfs/tree_writer.hpp"

namespace weft::kernel {

// The device numbers that a character device file shows.
inline constexpr unsigned kUverbsMajor = 231;
inline constexpr unsigned kUverbsFirstMinor = 192;

// What is there on a machine without RDMA devices, too.
void write_classes(TreeWriter& tree);

// The device file and the entries of the classes, for a NIC whose own folder is `device` (below
// sys/devices) and holds infiniband/<name>.
void write_class_entries(TreeWriter& tree, const NicDescription& nic,
                         const std::filesystem::path& device);

// Of the folder of a port.
void write_link_state(TreeWriter& tree, const std::filesystem::path& port, bool up);

// The same of the NIC's only port in a tree that is there.
class PortStateFiles {
 public:
  PortStateFiles(const std::string& root, const NicDescription& nic);
  // Allocates nothing. No error: readers of another user's tree cannot write to it.
  void write(bool up) const;

 private:
  std::string state_;
  std::string phys_state_;
};

}  // namespace weft::kernel
