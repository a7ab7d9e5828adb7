// Owns where in a network a guest is: the port that it takes, and the addresses around it.
//
// A guest is no attachment of weftd's: its kernel speaks Ethernet, so it comes in by a port to the
// outside, and gets an address that no NIC of the network has.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "srd/base/result.hpp"
#include "srd/net/address.hpp"

namespace weft::softroce {

struct GuestPlace {
  srd::Address address;
  std::string own_socket;  // one datagram is one frame, between these two
  std::string network_socket;
  std::size_t mtu = 1500;  // of the guest's interface
};

// A free dgram port of the network with that status (weftd's answer to "status"). `host`, its name
// or h1 to h254, is which host the guest is; a port on that host's link is taken if there is one.
// "": any port, and the first number that no host has. On the link of a host of ours the guest has
// another address than that one's NICs.
[[nodiscard]] Result<GuestPlace> find_guest_place(const nlohmann::json& status,
                                                  const std::string& host);

// Which host has that NIC, by its address: N of hN.
[[nodiscard]] unsigned number_of_host(const srd::Address& nic);

// The address of a guest on the link of that host, whose first NIC has `nic`.
[[nodiscard]] srd::Address beside(const srd::Address& nic);

}  // namespace weft::softroce
