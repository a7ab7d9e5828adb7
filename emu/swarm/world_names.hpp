// Owns the names that the swarm uses from the virtual world.
#pragma once

#include "emu/world/digest.hpp"
#include "emu/world/network.hpp"
#include "emu/world/packet_kind.hpp"
#include "emu/world/world.hpp"

namespace weft::swarm {

using world::Action;
using world::address_of_host;
using world::describe;
using world::Digest;
using world::kind_of;
using world::LinkModel;
using world::matches;
using world::NetworkCounts;
using world::NetworkEvent;
using world::Packet;
using world::Rule;
using world::VirtualNetwork;
using world::VirtualWorld;

}  // namespace weft::swarm
