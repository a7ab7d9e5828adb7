// Owns the search for other people's RDMA software on this machine.
#pragma once

#include <vector>

#include "emu/cli/doctor/doctor.hpp"

namespace weft::cli {

// The programs' libraries and tools: rdma-core, libfabric, perftest, Open MPI, DPDK.
[[nodiscard]] std::vector<Finding> examine_packages();

}  // namespace weft::cli
