// Owns the mapping between network addresses and the GIDs of EFA ports.
#pragma once

#include "srd/engine/types.hpp"

namespace weft::devices::efa {

// An EFA port has one, link-local, GID. That of an IPv4 address is made like a MAC's: the NIC's
// address follows from the GID of an address handle, without a lookup table. Other addresses stand
// for themselves, in both directions.
[[nodiscard]] srd::Address gid_of(const srd::Address& address);
[[nodiscard]] srd::Address address_of(const srd::Address& gid);

}  // namespace weft::devices::efa
