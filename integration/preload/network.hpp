// Owns bringing a NIC up in this process: its connection to the network, and the state of its link.
#pragma once

#include <memory>
#include <string>

#include "emu/devices/nic_runner.hpp"
#include "emu/kernel/nic_description.hpp"
#include "srd/base/result.hpp"

namespace weft::preload {

// Joins the network that WEFT_SOCKET names; without one the NIC reaches only itself. Counts into
// the file of counters in the tree at `root`, and keeps the port's state there. May wait for weftd
// for 20 s, and starts the background thread.
[[nodiscard]] Result<std::unique_ptr<devices::NicRunner>> start_nic(
    const std::string& root, const kernel::NicDescription& description);

}  // namespace weft::preload
