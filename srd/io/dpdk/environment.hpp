// Owns DPDK's environment abstraction layer: one start per process, with arguments that suit the
// machine.
#pragma once

#include <string>

#include "srd/base/result.hpp"
#include "srd/io/dpdk_port.hpp"

namespace weft::srd::dpdk {

// A device that exists in software only, "net_memif0,..." for instance.
[[nodiscard]] bool is_virtual(const std::string& devargs);

// Starts EAL once; later calls return the first one's result.
[[nodiscard]] Result<void> start_environment(const DpdkConfig& config);

}  // namespace weft::srd::dpdk
