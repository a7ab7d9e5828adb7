// Owns the files that stock libraries read of a soft-RoCE device before they open it.
//
// There is no `modalias`: libibverbs finds its library for soft-RoCE by the driver's number over
// netlink, else by a name that begins with "rxe".
#include "emu/kernel/sysfs/sysfs.hpp"

#include <filesystem>
#include <span>

#include "emu/devices/rxe/abilities.hpp"
#include "emu/devices/rxe/personality.hpp"
#include "emu/kernel/interfaces.hpp"
#include "emu/roce/wire/addresses.hpp"
#include "srd/base/check.hpp"
#include "srd/net/address_text.hpp"

namespace weft::devices::rxe {
namespace {

namespace fs = std::filesystem;

// Our own PCI domain: it cannot clash with a device of the machine. The device of Linux hangs on
// the network interface below it; programs that look for its place want to find one.
std::string pci_address(const kernel::NicDescription& nic) {
  return kernel::format("rxe0:%02x:00.0", nic.index & 0xFF);
}

void write_gids(kernel::TreeWriter& tree, const fs::path& port, const std::string& interface,
                std::span<const srd::Address> gids) {
  for (std::size_t i = 0; i < gids.size(); ++i) {
    const std::string index = std::to_string(i);
    tree.file(port / "gids" / index, kernel::byte_pairs(gids[i].bytes));
    tree.file(port / "gid_attrs/types" / index, "RoCE v2");
    tree.file(port / "gid_attrs/ndevs" / index, interface);
  }
}

void write_port(kernel::TreeWriter& tree, const fs::path& port, const Abilities& abilities) {
  kernel::write_link_state(tree, port, true);
  tree.file(port / "link_layer", "Ethernet");
  tree.file(port / "rate", kernel::format("%u Gb/sec (4X EDR)", abilities.gbps));
  tree.file(port / "lid", "0x0");
  tree.file(port / "sm_lid", "0x0");
  tree.file(port / "sm_sl", "0");
  tree.file(port / "lid_mask_count", "0");
  tree.file(port / "cap_mask", "0x00010000");
  tree.file(port / "pkeys/0", "0xffff");
}

}  // namespace

std::string RxePersonality::device_folder(const kernel::NicDescription& nic) const {
  const std::string pci = pci_address(nic);
  return "sys/devices/pci" + pci.substr(0, 7) + "/" + pci;
}

std::span<const char* const> RxePersonality::path_prefixes() const {
  static constexpr const char* kPrefixes[] = {
      "/sys/devices/pcirxe0:", "/sys/bus/pci/devices/rxe0:", "/sys/bus/pci/drivers/rxe"};
  return kPrefixes;
}

void RxePersonality::write_device(kernel::TreeWriter& tree,
                                  const kernel::NicDescription& nic) const {
  const auto address = srd::parse_address(nic.address);
  const auto abilities = abilities_from_text(nic.abilities);
  WEFT_CHECK(address && abilities);  // write_device_tree() has checked both
  const auto gids = roce::wire::addresses_of(*address);
  const std::string pci = pci_address(nic);
  const fs::path device = device_folder(nic);
  tree.file(device / "vendor", "0xffff");
  tree.file(device / "device", "0x0000");
  tree.file(device / "subsystem_vendor", "0xffff");
  tree.file(device / "subsystem_device", "0x0000");
  tree.file(device / "class", "0x020000");
  tree.file(device / "numa_node", std::to_string(static_cast<std::int32_t>(nic.numa_node)));
  tree.link(device / "driver", "sys/bus/pci/drivers/rxe");
  tree.link(device / "subsystem", "sys/bus/pci");
  tree.link(fs::path("sys/bus/pci/devices") / pci, device);
  tree.link(fs::path("sys/bus/pci/drivers/rxe") / pci, device);

  const fs::path ib = device / "infiniband" / nic.name;
  const std::string guid = kernel::byte_pairs(std::span(gids.front().bytes).subspan(8));
  tree.file(ib / "node_type", "1: CA");
  tree.file(ib / "node_guid", guid);
  tree.file(ib / "sys_image_guid", guid);
  tree.file(ib / "fw_ver", "EMULATED");
  tree.file(ib / "board_id", "EMULATED by weft, profile " + nic.profile);
  tree.file(ib / "hw_rev", "0x0");
  tree.file(ib / "hca_type", "RXE (EMULATED)");
  tree.file(ib / "node_desc", nic.name + " EMULATED");
  tree.link(ib / "device", device);
  write_port(tree, ib / "ports/1", *abilities);
  // There is no device/net: what finds an interface there asks the kernel for its addresses (`ip
  // addr show`), and the machine's kernel has none of that name.
  write_gids(tree, ib / "ports/1", kernel::interface_name(nic.index), gids);
}

}  // namespace weft::devices::rxe
