// Owns bringing a NIC up in this process: its connection to the network, and the state of its link.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emu/devices/nic_runner.hpp"
#include "emu/kernel/nic_description.hpp"
#include "srd/base/result.hpp"

namespace weft::preload {

// What the tree at `root` says of that NIC.
[[nodiscard]] Result<kernel::NicDescription> read_description(const std::string& root,
                                                              std::size_t nic);
// Of all its NICs, in order. Their numbers may have gaps: a container has some of its host's.
[[nodiscard]] std::vector<kernel::NicDescription> read_descriptions(const std::string& root);

// Joins the network that WEFT_SOCKET names; without one the NIC reaches only itself. Counts into
// the file of counters in the tree at `root`, and keeps the port's state there. May wait for
// weftd for 20 s, and starts the background thread.
struct StartedNic {
  std::unique_ptr<devices::NicRunner> runner;
  std::uint32_t index = 0;
  // See devices::Connections.
  std::function<bool(std::uint64_t service, bool wanted)> claim;
  std::function<bool(const srd::Address& address)> may_exist;
};
[[nodiscard]] Result<StartedNic> start_nic(const std::string& root,
                                           const kernel::NicDescription& description);

}  // namespace weft::preload
