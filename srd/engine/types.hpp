// Owns the names that everybody around the transport speaks: peers, regions, statuses.
#pragma once

#include <cstdint>

#include "srd/base/ids.hpp"
#include "srd/net/address.hpp"

namespace weft::srd {

// Index of a peer (a reliability context) inside one engine.
using PeerId = Id<struct PeerTag, std::uint32_t>;

// Names a registered memory region; 24 bits, because EFA's descriptors have no more room for a key.
using RegionKey = Id<struct RegionTag, std::uint32_t>;

// How a work request ended. Up to `unknown_peer` the value travels in acknowledgements
// (docs/wire.md).
enum class Status : std::uint8_t {
  ok = 0,
  bad_qpn = 1,             // no such endpoint at the responder, or it does not receive
  bad_qkey = 2,            // the endpoint's key is another one
  receiver_not_ready = 3,  // no receive posted, and the retries are used up
  length_error = 4,        // the posted receive is too short, or the message is longer than allowed
  bad_key = 5,             // no such region, or not of this endpoint's protection domain
  out_of_bounds = 6,       // outside of the region
  access_denied = 7,       // the region does not allow this access
  responder_busy = 8,  // too many reads at once; retried by the engine, not seen by the application
  feature_mismatch = 9,  // the responder does not offer this operation
  unknown_peer = 10,     // the responder lets only peers that it knows access its memory
  // Local outcomes, never on the wire:
  flushed = 32,           // cancelled by its owner
  peer_restarted = 33,    // the peer came back as a new life; what it had received is unknown
  unresponsive = 34,      // the peer answered before and does no more
  unreachable = 35,       // the peer never answered
  local_protection = 36,  // the work request's own memory does not allow it
};

[[nodiscard]] const char* to_string(Status status);

}  // namespace weft::srd
