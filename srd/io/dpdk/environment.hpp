// Owns DPDK's environment abstraction layer: one start per process, with arguments that suit the
// machine.
#pragma once

#include <string>

#include "srd/base/result.hpp"
#include "srd/io/dpdk_port.hpp"

namespace weft::srd::dpdk {

// "net_memif0,..." and the like exist in software only.
[[nodiscard]] bool is_virtual(const std::string& devargs);

// Once; later calls say what the first one said.
[[nodiscard]] Result<void> start_environment(const DpdkConfig& config);

}  // namespace weft::srd::dpdk
