// Owns the files that stock libraries read of an EFA device before they open it.
//
// Where a library can ask netlink it needs few of them. Where it cannot, libibverbs finds its
// library for EFA by `modalias`, `vendor` and `device`. Programs read `numa_node` and the PCI path
// to decide which device is near.
#include "emu/kernel/sysfs/sysfs.hpp"

#include <filesystem>
#include <span>

#include "emu/devices/efa/abilities.hpp"
#include "emu/devices/efa/gid.hpp"
#include "emu/devices/efa/personality.hpp"
#include "srd/base/check.hpp"
#include "srd/net/address_text.hpp"

namespace weft::devices::efa {
namespace {

namespace fs = std::filesystem;

// Our own PCI domain: it cannot clash with a device of the machine.
std::string pci_address(const kernel::NicDescription& nic) {
  return kernel::format("efa0:%02x:00.0", nic.index & 0xFF);
}

void write_port(kernel::TreeWriter& tree, const fs::path& port, const Abilities& abilities,
                const srd::Address& gid) {
  kernel::write_link_state(tree, port, true);
  tree.file(port / "link_layer", "Unspecified");
  tree.file(port / "rate", kernel::format("%u Gb/sec (4X EDR)", abilities.gbps));
  tree.file(port / "lid", "0x0");
  tree.file(port / "sm_lid", "0x0");
  tree.file(port / "sm_sl", "0");
  tree.file(port / "lid_mask_count", "1");
  tree.file(port / "cap_mask", "0x00000000");
  tree.file(port / "gids/0", kernel::byte_pairs(gid.bytes));
  tree.file(port / "gid_attrs/types/0", "IB/RoCE v1");
  tree.file(port / "pkeys/0", "0xffff");
}

}  // namespace

std::string EfaPersonality::device_folder(const kernel::NicDescription& nic) const {
  const std::string pci = pci_address(nic);
  return "sys/devices/pci" + pci.substr(0, 7) + "/" + pci;
}

std::span<const char* const> EfaPersonality::path_prefixes() const {
  static constexpr const char* kPrefixes[] = {
      "/sys/devices/pciefa0:", "/sys/bus/pci/devices/efa0:", "/sys/bus/pci/drivers/efa",
      "/sys/class/pci_bus/efa0:"};
  return kPrefixes;
}

// Values that must not be mistaken for a real device's say EMULATED.
void EfaPersonality::write_device(kernel::TreeWriter& tree,
                                  const kernel::NicDescription& nic) const {
  const auto address = srd::parse_address(nic.address);
  const auto abilities = abilities_from_text(nic.abilities);
  WEFT_CHECK(address && abilities);  // write_device_tree() has checked both
  const srd::Address port_gid = gid_of(*address);
  const std::string pci = pci_address(nic);
  const fs::path device = device_folder(nic);
  tree.file(device / "modalias", kernel::format("pci:v00001D0Fd%08Xsv00001D0Fsd%08Xbc02sc00i00",
                                                abilities->part_id, abilities->part_id));
  tree.file(device / "vendor", "0x1d0f");
  tree.file(device / "device", kernel::format("0x%04x", abilities->part_id));
  tree.file(device / "subsystem_vendor", "0x1d0f");
  tree.file(device / "subsystem_device", kernel::format("0x%04x", abilities->part_id));
  tree.file(device / "class", "0x020000");
  tree.file(device / "numa_node", std::to_string(static_cast<std::int32_t>(nic.numa_node)));
  tree.link(device / "driver", "sys/bus/pci/drivers/efa");
  tree.link(device / "subsystem", "sys/bus/pci");
  tree.link(fs::path("sys/bus/pci/devices") / pci, device);
  tree.link(fs::path("sys/bus/pci/drivers/efa") / pci, device);

  // Programs that know only the PCI address go over its bus.
  const std::string bus = pci.substr(0, 7);
  const fs::path bus_folder = device.parent_path() / "pci_bus" / bus;
  tree.folder(bus_folder);
  tree.link(fs::path("sys/class/pci_bus") / bus, bus_folder);

  const fs::path ib = device / "infiniband" / nic.name;
  const std::string guid = kernel::byte_pairs(std::span(port_gid.bytes).subspan(8));
  // What Linux prints for RDMA_NODE_UNSPECIFIED, EFA's type.
  tree.file(ib / "node_type", "7: <unknown>");
  tree.file(ib / "node_guid", guid);
  tree.file(ib / "sys_image_guid", guid);
  tree.file(ib / "fw_ver", "EMULATED");
  tree.file(ib / "board_id", "EMULATED by weft, profile " + nic.profile);
  tree.file(ib / "hw_rev", kernel::format("0x%x", abilities->part_id));
  tree.file(ib / "hca_type", "EFA (EMULATED)");
  tree.file(ib / "node_desc", nic.name + " EMULATED");
  tree.link(ib / "device", device);
  write_port(tree, ib / "ports/1", *abilities, port_gid);
}

}  // namespace weft::devices::efa
