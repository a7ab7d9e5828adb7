// Owns the names and numbers of the network interfaces that emulated NICs seem to lie on. The
// machine's kernel has none of them.
#pragma once

#include <cstdint>
#include <string>

namespace weft::kernel {

inline constexpr const char* kInterfacePrefix = "weft";

// `nic`: NicDescription::index.
[[nodiscard]] inline std::string interface_name(std::uint32_t nic) {
  return kInterfacePrefix + std::to_string(nic);
}
// Far above what a machine counts up to.
[[nodiscard]] constexpr std::uint32_t interface_index(std::uint32_t nic) {
  constexpr std::uint32_t kFirst = 770'000'000;
  return kFirst + nic;
}

}  // namespace weft::kernel
