// Owns the form of an EFA port's GID.
#include "emu/devices/efa/gid.hpp"

#include <array>
#include <cstring>

namespace weft::devices::efa {
namespace {

// fe80::02aa:00ff:febb:ccdd stands for aa.bb.cc.dd (in hexadecimal).
constexpr std::array<std::byte, 9> kGidHead = {std::byte{0xFE}, std::byte{0x80}, std::byte{0},
                                               std::byte{0},    std::byte{0},    std::byte{0},
                                               std::byte{0},    std::byte{0},    std::byte{0x02}};
constexpr std::array<std::byte, 3> kGidMiddle = {std::byte{0}, std::byte{0xFF}, std::byte{0xFE}};

}  // namespace

srd::Address gid_of(const srd::Address& address) {
  if (!address.is_v4()) {
    return address;
  }
  srd::Address gid;
  std::memcpy(gid.bytes.data(), kGidHead.data(), kGidHead.size());
  gid.bytes[9] = address.bytes[12];
  std::memcpy(&gid.bytes[10], kGidMiddle.data(), kGidMiddle.size());
  std::memcpy(&gid.bytes[13], &address.bytes[13], 3);
  return gid;
}

srd::Address address_of(const srd::Address& gid) {
  if (std::memcmp(gid.bytes.data(), kGidHead.data(), kGidHead.size()) != 0 ||
      std::memcmp(&gid.bytes[10], kGidMiddle.data(), kGidMiddle.size()) != 0) {
    return gid;
  }
  const std::array four{gid.bytes[9], gid.bytes[13], gid.bytes[14], gid.bytes[15]};
  return srd::Address::v4(four.data());
}

}  // namespace weft::devices::efa
