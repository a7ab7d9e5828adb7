// Owns what every management datagram begins with.
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

}  // namespace weft::roce::wire
