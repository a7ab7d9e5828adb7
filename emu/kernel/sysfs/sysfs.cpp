// Owns the files that stock libraries read about any device before they open it.
#include "emu/kernel/sysfs/sysfs.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "emu/kernel/abi/ucma.hpp"
#include "emu/kernel/abi/umad.hpp"
#include "emu/kernel/abi/uverbs.hpp"

namespace weft::kernel {
namespace {

namespace fs = std::filesystem;

fs::path class_folder(const NicDescription& nic) {
  return fs::path("sys/class/infiniband") / nic.name;
}

std::string state_text(bool up) {
  return std::to_string(abi::port_state(up)) + (up ? ": ACTIVE" : ": DOWN");
}
std::string phys_state_text(bool up) {
  return std::to_string(abi::port_physical_state(up)) + (up ? ": LinkUp" : ": Disabled");
}

// Replaces the line in one pwrite(), so that a reader sees the old line or the new one; a longer
// old line is cut after that.
void replace_line(const std::string& path, std::string_view line) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) {
    return;
  }
  char text[32];
  const std::size_t size = line.copy(text, sizeof text - 1);
  text[size] = '\n';
  if (::pwrite(fd, text, size + 1, 0) > 0) {
    (void)!::ftruncate(fd, static_cast<off_t>(size + 1));
  }
  ::close(fd);
}

// The file /dev/infiniband/NAME and its entry in a class, which is as a kernel lays it out a link
// into the folder of the device. Returns what the link leads to.
fs::path write_device_file(TreeWriter& tree, const NicDescription& nic, const fs::path& device,
                           const std::string& of_class, const std::string& name, unsigned minor) {
  const fs::path own = device / of_class / name;
  tree.file(own / "dev", format("%u:%u", kUverbsMajor, minor));
  tree.file(own / "ibdev", nic.name);
  tree.link(own / "device", device);
  tree.link(fs::path("sys/class") / of_class / name, own);
  tree.file(fs::path("dev/infiniband") / name, "");
  return own;
}

}  // namespace

// 6 is the version of the kernel's interface that libraries know.
void write_classes(TreeWriter& tree) {
  tree.file("sys/class/infiniband_verbs/abi_version", "6");
  tree.folder("dev/infiniband");
}

void write_connections(TreeWriter& tree) {
  tree.file("sys/class/misc/rdma_cm/dev", format("%u:%u", kMiscMajor, kConnectionsMinor));
  tree.file("sys/class/misc/rdma_cm/abi_version", std::to_string(abi::ucma::kAbiVersion));
  tree.file("dev/infiniband/rdma_cm", "");
  tree.file("sys/class/infiniband_mad/abi_version", std::to_string(abi::umad::kAbiVersion));
}

void write_datagrams(TreeWriter& tree, const NicDescription& nic, const fs::path& device) {
  const fs::path own =
      write_device_file(tree, nic, device, "infiniband_mad", "umad" + std::to_string(nic.index),
                        kUmadFirstMinor + nic.index);
  tree.file(own / "port", "1");
}

void write_class_entries(TreeWriter& tree, const NicDescription& nic, const fs::path& device) {
  tree.link(class_folder(nic), device / "infiniband" / nic.name);
  const fs::path own =
      write_device_file(tree, nic, device, "infiniband_verbs", "uverbs" + std::to_string(nic.index),
                        kUverbsFirstMinor + nic.index);
  tree.file(own / "abi_version", "1");
}

void write_link_state(TreeWriter& tree, const fs::path& port, bool up) {
  tree.file(port / "state", state_text(up));
  tree.file(port / "phys_state", phys_state_text(up));
}

PortStateFiles::PortStateFiles(const std::string& root, const NicDescription& nic) {
  const fs::path port = root / class_folder(nic) / "ports/1";
  state_ = port / "state";
  phys_state_ = port / "phys_state";
}

void PortStateFiles::write(bool up) const {
  replace_line(state_, state_text(up));
  replace_line(phys_state_, phys_state_text(up));
}

}  // namespace weft::kernel
