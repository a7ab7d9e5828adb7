// Owns the properties that every emulated NIC has, whatever its kind, as flat text that a preloaded
// library can read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "srd/base/result.hpp"

namespace weft::kernel {

// Written into the device tree by `weft run`, read by the preload library in each program.
struct NicDescription {
  std::string name = "rdma_0";
  std::string kind = "none";  // which of the registered kinds of devices it is
  std::string profile = "custom";
  std::string address = "127.0.0.1";     // of the NIC on the emulated network; IPv4 or IPv6
  std::uint32_t index = 0;               // N of uverbsN; the rail
  std::uint32_t numa_node = 0xFFFFFFFF;  // as sysfs says -1
  // One "key value" per line, which only its kind understands.
  std::string abilities;

  friend bool operator==(const NicDescription&, const NicDescription&) = default;
};

[[nodiscard]] std::string to_text(const NicDescription& description);
// Keys it does not name keep their defaults; those that are not of every NIC are its abilities. A
// bad value is an error that names the line.
[[nodiscard]] Result<NicDescription> nic_from_text(std::string_view text);

}  // namespace weft::kernel
