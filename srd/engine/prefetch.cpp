// Owns the prefetching of what the engine will touch, for callers that know which engine comes
// next: one that serves thousands of engines finds none of them in the cache.
#include "srd/base/prefetch.hpp"

#include "srd/engine/engine.hpp"

namespace weft::srd {
void Engine::prefetch(const PeerKey* from, unsigned step) const {
  switch (step) {
    case 1:
      parts_.schedule.prefetch();
      parts_.endpoints.prefetch();
      if (from != nullptr) {
        parts_.peers.prefetch(*from);
      }
      return;
    case 2:
    case 3:
      break;
    default:
      return;
  }
  const Peer* const next =
      from != nullptr ? parts_.peers.peek(*from) : parts_.schedule.first_ready();
  if (next == nullptr) {
    return;
  }
  const Peer& peer = *next;
  if (step == 2) {
    weft::prefetch(&peer, sizeof peer);
    return;
  }
  if (const ImmediateTable* const immediates = peer.receiver.known_immediates()) {
    weft::prefetch(immediates, kCacheLine);
  }
  if (peer.sender) {
    peer.sender->prefetch_all();
  }
}

}  // namespace weft::srd
