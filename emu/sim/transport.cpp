// Owns the simulation's addresses and its stand-in for payload.
#include "emu/sim/transport.hpp"

#include <array>

#include "srd/base/check.hpp"

namespace weft::sim {

srd::Address address_of(fabric::PortId port) {
  srd::Address address;
  address.bytes[0] = std::byte{0xFD};
  for (std::size_t i = 0; i < 4; ++i) {
    address.bytes[12 + i] = static_cast<std::byte>(port >> (24 - 8 * i));
  }
  return address;
}

std::span<const std::byte> phantom_payload(std::size_t length) {
  static constexpr std::array<std::byte, 65536> kPage{};
  WEFT_CHECK(length <= kPage.size());
  return {kPage.data(), length};
}

}  // namespace weft::sim
