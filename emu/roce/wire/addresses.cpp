// Owns how the addresses of a NIC follow from the one that weftd gives it, and back.
#include "emu/roce/wire/addresses.hpp"

#include <algorithm>
#include <array>

#include "srd/net/envelope.hpp"

namespace weft::roce::wire {
namespace {

constexpr std::size_t kInterface = 8;  // where the interface's half of an address begins
constexpr std::array<std::byte, kInterface> kLinkLocal{std::byte{0xFE}, std::byte{0x80}};
constexpr std::array<std::byte, kInterface> kUniqueLocal{
    std::byte{0xFD}, std::byte{0x77}, std::byte{0x65}, std::byte{0x66}, std::byte{0x74}};
constexpr std::byte kInverted{0x02};  // of an Ethernet address: locally administered

bool begins_with(const srd::Address& address, const std::array<std::byte, kInterface>& prefix) {
  return std::equal(prefix.begin(), prefix.end(), address.bytes.begin());
}

srd::Address with_interface(const std::array<std::byte, kInterface>& prefix,
                            const srd::net::MacAddress& mac) {
  srd::Address to;
  std::ranges::copy(prefix, to.bytes.begin());
  std::copy_n(mac.begin(), 3, &to.bytes[kInterface]);
  to.bytes[kInterface] ^= kInverted;
  to.bytes[11] = std::byte{0xFF};
  to.bytes[12] = std::byte{0xFE};
  std::copy_n(mac.begin() + 3, 3, &to.bytes[13]);
  return to;
}

}  // namespace

// An IPv6 NIC has no alias: its EUI-64 could not be turned back into the address.
std::vector<srd::Address> addresses_of(const srd::Address& nic) {
  if (!nic.is_v4()) {
    return {nic};
  }
  const auto mac = srd::net::mac_of(nic);
  std::vector<srd::Address> all = {with_interface(kLinkLocal, mac), nic};
  all.insert(all.begin() + kIpv6Gid, with_interface(kUniqueLocal, mac));
  return all;
}

srd::Address nic_of_alias(const srd::Address& address) {
  const bool link_local = begins_with(address, kLinkLocal);
  if (!link_local && !begins_with(address, kUniqueLocal)) {
    return address;
  }
  // The Ethernet address is made of the IPv4 address (srd::net::mac_of()), so the alias holds all
  // four of its bytes. Whether it really is one is only known by making it again and comparing.
  const std::array four{address.bytes[10], address.bytes[13], address.bytes[14], address.bytes[15]};
  const srd::Address nic = srd::Address::v4(four.data());
  const srd::Address alias =
      with_interface(link_local ? kLinkLocal : kUniqueLocal, srd::net::mac_of(nic));
  return alias == address ? nic : address;
}

bool is_link_local(const srd::Address& address) { return begins_with(address, kLinkLocal); }

}  // namespace weft::roce::wire
