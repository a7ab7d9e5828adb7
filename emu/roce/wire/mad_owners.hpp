// Owns the numbers by which processes and weftd agree which process a management datagram is for.
#pragma once

#include <cstdint>

#include "emu/roce/wire/mad_header.hpp"

namespace weft::roce::wire {

// Processes ask weftd for the methods that they answer to by the same numbers as for services of
// rdma_cm, which never begin so.
inline constexpr std::uint64_t kMethodServices = std::uint64_t{0xFE} << 56;
[[nodiscard]] constexpr bool is_method_service(std::uint64_t service) {
  return service >> 56 == kMethodServices >> 56;
}
[[nodiscard]] constexpr std::uint64_t method_service(std::uint8_t management_class,
                                                     std::uint8_t class_version,
                                                     std::uint8_t method, std::uint32_t oui) {
  return kMethodServices | std::uint64_t{management_class} << 48 |
         std::uint64_t{class_version} << 40 |
         (std::uint64_t{method} & std::uint64_t{kMethodMask}) << 32 | oui;
}

// The upper half of a transaction id is the number of the agent that has asked, which begins with
// the attachment of its process; Linux leaves these bits free.
inline constexpr unsigned kAgentShift = 32;
inline constexpr unsigned kAgentBits = 24;
[[nodiscard]] constexpr std::uint32_t agent_of(std::uint64_t transaction) {
  return static_cast<std::uint32_t>(transaction >> kAgentShift);
}

}  // namespace weft::roce::wire
