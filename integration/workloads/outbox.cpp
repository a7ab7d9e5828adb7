// Owns posting to other ranks.
#include "integration/workloads/outbox.hpp"

#include "srd/base/check.hpp"

namespace weft::workloads {

void Outbox::open(RankPlace& place, srd::Region region) {
  region.domain = kDomain;
  region.access = srd::Access::local_write | srd::Access::remote_write;
  const auto key = engine_.memory().insert(region);
  WEFT_CHECK(key.has_value());
  place.key = *key;
  place.base = region.address;
  WEFT_CHECK(
      engine_.open_endpoint(qpn_, {.qkey = kQkey, .domain = kDomain, .unsolicited_immediate = true})
          .has_value());
}

// A rank has no peer for itself: what it sends to itself is copied (LowLatencyRank::post_one(),
// NormalRank::start()).
void Outbox::meet(std::span<const RankPlace> places, std::uint32_t self) {
  places_.assign(places.begin(), places.end());
  peers_.resize(places.size());
  for (std::uint32_t rank = 0; rank < places.size(); ++rank) {
    if (rank == self) {
      continue;
    }
    const auto peer = engine_.peer(places[rank].address, places[rank].attachment);
    WEFT_CHECK(peer.has_value());
    peers_[rank] = *peer;
    if (peer->value() >= ranks_.size()) {
      ranks_.resize(peer->value() + 1, kNobody);
    }
    ranks_[peer->value()] = rank;
  }
}

bool Outbox::post(const Item& item) {
  srd::WriteRequest request;
  request.peer = peers_[item.rank];
  request.source = qpn_;
  request.destination = places_[item.rank].qpn;
  request.qkey = kQkey;
  request.cookie = item.cookie;
  request.segments = item.segments;
  request.remote_key = places_[item.rank].key;
  request.remote_address = places_[item.rank].base + item.offset;
  request.immediate = item.immediate;
  request.phantom = item.phantom;
  // Anything else would be a mistake of the workload's: peers and keys were exchanged by meet().
  const srd::PostResult result = engine_.post(request);
  WEFT_CHECK(result == srd::PostResult::accepted || result == srd::PostResult::queue_full);
  return result == srd::PostResult::accepted;
}

std::uint32_t Outbox::rank_of(srd::PeerId peer) const {
  return peer.value() < ranks_.size() ? ranks_[peer.value()] : kNobody;
}

}  // namespace weft::workloads
