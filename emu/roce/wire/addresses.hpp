// Owns the addresses of a NIC: those that follow from the one that weftd gives it, in the order of
// its GID table.
#pragma once

#include <cstddef>
#include <vector>

#include "srd/net/address.hpp"

namespace weft::roce::wire {

// The order of Linux: the link-local address of the interface comes first, then its IPv4 address,
// mapped, and then this.
inline constexpr std::size_t kIpv6Gid = 2;

// fe80::/64 and fd77:6566:7400::/64 with the interface's EUI-64, as hosts make their addresses of a
// router's advertisement. A NIC that has an IPv6 address from weftd has only that.
[[nodiscard]] std::vector<srd::Address> addresses_of(const srd::Address& nic);

// The inverse: the address that names the NIC which has this one. Of what is no such address,
// itself.
[[nodiscard]] srd::Address nic_of_alias(const srd::Address& address);
[[nodiscard]] inline srd::Address nic_of(const srd::Address& address) {
  return address.is_v4() ? address : nic_of_alias(address);
}

[[nodiscard]] bool is_link_local(const srd::Address& address);

}  // namespace weft::roce::wire
