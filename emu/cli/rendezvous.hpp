// Owns what one side of a run tells the other about itself before they talk over the network.
#pragma once

#include <cstdint>

#include "srd/engine/types.hpp"
#include "srd/net/address.hpp"

namespace weft::cli {

// Lies in memory that both processes share. One side writes it, and sets an atomic beside it when
// it is complete (release); the other side reads it only after it has seen that (acquire).
struct Rendezvous {
  srd::Address address;
  srd::AttachmentId attachment;
  srd::Qpn qpn;
  srd::RegionKey key;
  std::uint64_t buffer = 0;  // where the region begins, as its owner sees it
};

}  // namespace weft::cli
