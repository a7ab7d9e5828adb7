// Owns the files that stock libraries read before they open a device.
#include "emu/kernel/sysfs.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "emu/kernel/statistics.hpp"

namespace weft::emu::kernel {
namespace {

namespace fs = std::filesystem;

class TreeWriter {
 public:
  explicit TreeWriter(fs::path root) : root_(std::move(root)) {}

  void file(const fs::path& path, const std::string& line) {
    std::error_code error;
    fs::create_directories((root_ / path).parent_path(), error);
    std::ofstream out(root_ / path, std::ios::trunc);
    out << line << '\n';
    note(path, !out.good());
  }
  void link(const fs::path& path, const fs::path& target) {
    std::error_code error;
    fs::create_directories((root_ / path).parent_path(), error);
    fs::remove(root_ / path, error);
    fs::create_symlink(target.lexically_relative(path.parent_path()), root_ / path, error);
    note(path, static_cast<bool>(error));
  }
  void folder(const fs::path& path) {
    std::error_code error;
    fs::create_directories(root_ / path, error);
    note(path, static_cast<bool>(error));
  }
  [[nodiscard]] const std::string& failed() const { return failed_; }

 private:
  void note(const fs::path& path, bool bad) {
    if (bad && failed_.empty()) {
      failed_ = (root_ / path).string();
    }
  }
  fs::path root_;
  std::string failed_;
};

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char text[128];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

std::string groups(std::span<const std::byte> bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    text += format("%s%02x%02x", i == 0 ? "" : ":", static_cast<unsigned>(bytes[i]),
                   static_cast<unsigned>(bytes[i + 1]));
  }
  return text;
}

void write_link(TreeWriter& tree, const fs::path& port, bool up) {
  tree.file(port / "state", up ? "4: ACTIVE" : "1: DOWN");
  tree.file(port / "phys_state", up ? "5: LinkUp" : "3: Disabled");
}

fs::path class_folder(const NicDescription& nic) {
  return fs::path("sys/class/infiniband") / nic.name;
}

void write_port(TreeWriter& tree, const fs::path& port, const NicDescription& nic,
                const srd::Address& gid) {
  write_link(tree, port, true);
  tree.file(port / "link_layer", "Unspecified");
  tree.file(port / "rate", format("%u Gb/sec (4X EDR)", nic.gbps));
  tree.file(port / "lid", "0x0");
  tree.file(port / "sm_lid", "0x0");
  tree.file(port / "sm_sl", "0");
  tree.file(port / "lid_mask_count", "1");
  tree.file(port / "cap_mask", "0x00000000");
  tree.file(port / "gids/0", groups(gid.bytes));
  tree.file(port / "gid_attrs/types/0", "IB/RoCE v1");
  tree.file(port / "pkeys/0", "0xffff");
  tree.file(port / "hw_counters/lifespan", "10");
  visit_port_counters({}, [&](const char* counter, std::uint64_t value) {
    tree.file(port / "hw_counters" / counter, std::to_string(value));
  });
}

void write_nic(TreeWriter& tree, const NicDescription& nic, const srd::Address& gid) {
  const std::string pci = pci_address(nic);
  const fs::path device = fs::path("sys/devices") / ("pci" + pci.substr(0, 7)) / pci;
  tree.file(device / "modalias",
            format("pci:v00001D0Fd%08Xsv00001D0Fsd%08Xbc02sc00i00", nic.part_id, nic.part_id));
  tree.file(device / "vendor", "0x1d0f");
  tree.file(device / "device", format("0x%04x", nic.part_id));
  tree.file(device / "subsystem_vendor", "0x1d0f");
  tree.file(device / "subsystem_device", format("0x%04x", nic.part_id));
  tree.file(device / "class", "0x020000");
  tree.file(device / "numa_node", std::to_string(static_cast<std::int32_t>(nic.numa_node)));
  tree.link(device / "driver", "sys/bus/pci/drivers/efa");
  tree.link(device / "subsystem", "sys/bus/pci");
  tree.link(fs::path("sys/bus/pci/devices") / pci, device);
  tree.link(fs::path("sys/bus/pci/drivers/efa") / pci, device);

  const fs::path ib = device / "infiniband" / nic.name;
  const std::string guid = groups(std::span(gid.bytes).subspan(8));
  tree.file(ib / "node_type", "7: <unknown>");
  tree.file(ib / "node_guid", guid);
  tree.file(ib / "sys_image_guid", guid);
  tree.file(ib / "fw_ver", "EMULATED");
  tree.file(ib / "board_id", "EMULATED by weft, profile " + nic.profile);
  tree.file(ib / "hw_rev", format("0x%x", nic.part_id));
  tree.file(ib / "hca_type", "EFA (EMULATED)");
  tree.file(ib / "node_desc", nic.name + " EMULATED");
  tree.link(ib / "device", device);
  tree.file(ib / "hw_counters/lifespan", "10");
  visit_device_counters({}, [&](const char* counter, std::uint64_t value) {
    tree.file(ib / "hw_counters" / counter, std::to_string(value));
  });
  write_port(tree, ib / "ports/1", nic, gid);
  tree.link(class_folder(nic), ib);

  const std::string uverbs = "uverbs" + std::to_string(nic.index);
  const fs::path verbs = device / "infiniband_verbs" / uverbs;
  tree.file(verbs / "dev", format("%u:%u", kUverbsMajor, kUverbsFirstMinor + nic.index));
  tree.file(verbs / "ibdev", nic.name);
  tree.file(verbs / "abi_version", "1");
  tree.link(verbs / "device", device);
  tree.link(fs::path("sys/class/infiniband_verbs") / uverbs, verbs);
  tree.file(fs::path("dev/infiniband") / uverbs, "");
}

// Whatever the umask: programs of any user read the tree, and bring up to date what changes.
void open_to_everybody(const fs::path& top) {
  std::error_code error;
  const auto all_read = fs::perms::owner_write | fs::perms::owner_read | fs::perms::group_read |
                        fs::perms::others_read;
  const auto all_write = fs::perms::group_write | fs::perms::others_write;
  const auto all_enter = fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec;
  fs::permissions(top, all_read | all_enter, error);
  for (const auto& entry : fs::recursive_directory_iterator(top, error)) {
    if (entry.is_symlink(error)) {
      continue;
    }
    const fs::path name = entry.path().filename();
    const fs::path folder = entry.path().parent_path().filename();
    const bool changes = folder == "hw_counters" || folder == "statistics" || name == "state" ||
                         name == "phys_state" || name.string().starts_with("uverbs");
    const auto more = entry.is_directory(error) ? all_enter : changes ? all_write : fs::perms::none;
    fs::permissions(entry.path(), all_read | more, error);
  }
}

}  // namespace

std::string pci_address(const NicDescription& nic) {
  return format("efa0:%02x:00.0", nic.index & 0xFF);
}

Result<void> write_device_tree(const std::string& root, std::span<const NicDescription> nics) {
  TreeWriter tree{root};
  tree.folder("sys/bus/pci/drivers/efa");
  tree.file("sys/class/infiniband_verbs/abi_version", "6");
  tree.folder("dev/infiniband");
  tree.folder("statistics");
  for (const NicDescription& nic : nics) {
    const auto address = parse_address(nic.address);
    if (!address) {
      return tl::unexpected(address.error());
    }
    write_nic(tree, nic, gid_of(*address));
    tree.file("nic" + std::to_string(nic.index), to_text(nic));
    if (auto made = make_statistics_file(statistics_path(root, nic.name)); !made) {
      return made;
    }
  }
  open_to_everybody(root);
  if (!tree.failed().empty()) {
    return fail(ErrorCode::io_error,
                "cannot write " + tree.failed() + "; is there room, and is the folder yours?");
  }
  return {};
}

void write_port_state(const std::string& root, const NicDescription& nic, bool up) {
  TreeWriter tree{root};
  write_link(tree, class_folder(nic) / "ports/1", up);
}

}  // namespace weft::emu::kernel
