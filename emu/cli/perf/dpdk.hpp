// Owns the DPDK ports of `weft perf`: two devices that reach each other.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "emu/cli/perf/endpoint.hpp"
#include "emu/launch/temporary_directory.hpp"
#include "srd/base/result.hpp"

namespace weft::cli {

// Made once, before the sides are forked; each side then opens its own device with DPDK's EAL,
// which a process can start only once.
struct DpdkPlan {
  std::array<std::string, 2> devargs;
  std::vector<std::string> eal;
  std::optional<launch::TemporaryDirectory> directory = {};  // of sockets
};

// What follows "dpdk:": "memif", "vhost", "af_packet", or devargs, or those of each side with `;`
// between. af_packet moves this process into a network namespace of its own, with a pair of
// devices.
[[nodiscard]] Result<DpdkPlan> plan_dpdk(const std::string& text, const std::string& eal);

// In the process of that side. `run` tells runs apart (srd::Life). A client waits until its
// server's socket is there. Throws std::runtime_error.
[[nodiscard]] PerfPlace place_on_dpdk(const DpdkPlan& plan, int side, unsigned run);

}  // namespace weft::cli
