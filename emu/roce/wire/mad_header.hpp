// Owns what every management datagram begins with, and by which of it a host finds the process that
// one is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emu/roce/wire/mad.hpp"

namespace weft::roce::wire {

inline constexpr std::uint8_t kMadBaseVersion = 1;
inline constexpr std::uint8_t kCmClassVersion = 2;
inline constexpr std::uint8_t kMethodSend = 0x03;
inline constexpr std::uint16_t kClassPortInfo = 0x01;
inline constexpr std::uint8_t kMethodMask = 0x7F;  // the other bit: it is an answer
// Of queue pair 0, which RoCE has not.
inline constexpr std::uint8_t kSubnetLidRouted = 0x01;
inline constexpr std::uint8_t kSubnetDirected = 0x81;

struct MadHeader {
  std::uint8_t base_version = 0;
  std::uint8_t management_class = 0;
  std::uint8_t class_version = 0;
  std::uint8_t method = 0;
  std::uint64_t transaction = 0;
  std::uint16_t attribute = 0;
  std::uint32_t modifier = 0;
  std::uint32_t oui = 0;  // vendors' classes of the second range only
};

// `mad` has all of its kMadSize bytes.
[[nodiscard]] MadHeader read_mad_header(std::span<const std::byte> mad);

// By the method, but for two classes that say it otherwise.
[[nodiscard]] bool is_answer(const MadHeader& mad);
[[nodiscard]] constexpr bool names_vendor(std::uint8_t management_class) {
  return management_class >= 0x30 && management_class <= 0x4F;
}
[[nodiscard]] inline bool is_of_subnet(const MadHeader& mad) {
  return mad.management_class == kSubnetLidRouted || mad.management_class == kSubnetDirected;
}
// What rdma_cm of a host answers to.
[[nodiscard]] inline bool is_of_connections(const MadHeader& mad) {
  return mad.management_class == kCmClass && mad.class_version == kCmClassVersion &&
         mad.method == kMethodSend;
}

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
