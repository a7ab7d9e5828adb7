// Owns the whole of a host's device tree, and the rights to read and write it.
#include "emu/devices/device_tree.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "emu/devices/counter_files.hpp"
#include "emu/devices/registry.hpp"
#include "emu/kernel/sysfs/sysfs.hpp"
#include "srd/net/address_text.hpp"

namespace weft::devices {
namespace {

namespace fs = std::filesystem;

// Whatever the umask: programs of any user must be able to read the tree, and to write its counters
// and port states.
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
    const bool changes = folder == "hw_counters" || folder == "counters" ||
                         folder == "statistics" || name == "state" || name == "phys_state" ||
                         name.string().starts_with("uverbs") || name == "rdma_cm" ||
                         (folder == "infiniband" && name.string().starts_with("umad"));
    const auto more = entry.is_directory(error) ? all_enter : changes ? all_write : fs::perms::none;
    fs::permissions(entry.path(), all_read | more, error);
  }
}

}  // namespace

Result<void> write_device_tree(const std::string& root, const Personality& kind,
                               std::span<const kernel::NicDescription> nics) {
  kernel::TreeWriter tree{root};
  kernel::write_classes(tree);
  const auto kind_of = [&](const kernel::NicDescription& nic) {
    const Personality* const other = nic.kind == kind.kind() ? nullptr : find_kind(nic.kind);
    return other != nullptr ? other : &kind;
  };
  if (std::ranges::any_of(nics,
                          [&](const auto& nic) { return kind_of(nic)->manages_connections(); })) {
    kernel::write_connections(tree);
  }
  tree.folder("statistics");
  for (const kernel::NicDescription& nic : nics) {
    if (const auto address = srd::parse_address(nic.address); !address) {
      return tl::unexpected(address.error());
    }
    const Personality& own = *kind_of(nic);
    if (auto good = own.read(nic.abilities); !good) {
      return good;
    }
    own.write_device(tree, nic);
    const fs::path device = own.device_folder(nic);
    write_counter_files(tree, own, device / "infiniband" / nic.name);
    kernel::write_class_entries(tree, nic, device);
    if (own.manages_connections()) {
      kernel::write_datagrams(tree, nic, device);
    }
    tree.file("nic" + std::to_string(nic.index), kernel::to_text(nic));
    if (auto made =
            kernel::make_statistics_file(kernel::statistics_path(root, nic.name), own.kind());
        !made) {
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

}  // namespace weft::devices
