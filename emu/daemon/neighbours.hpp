// Owns answers to the question which Ethernet address has a network address: ARP (RFC 826), and
// neighbour discovery of IPv6 (RFC 4861).
//
// NICs of ours never ask, as their Ethernet addresses follow from the others
// (srd/net/envelope.hpp). Kernels outside ask, and no kernel is behind our NICs to answer.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "srd/net/address.hpp"

namespace weft::daemon {

// The address that a frame asks about. Nothing if it does not ask, or not as the RFCs demand.
[[nodiscard]] std::optional<srd::Address> asked_address(std::span<const std::byte> frame);

// The answer to a frame that asks, to who asked: that the address has the Ethernet address of
// `nic`.
[[nodiscard]] std::vector<std::byte> neighbour_answer(std::span<const std::byte> question,
                                                      const srd::Address& nic);

}  // namespace weft::daemon
