// Owns the fetching of what the engine will touch, for callers that know who comes next: one that
// serves thousands of engines finds none of them in the cache.
#include "srd/base/prefetch.hpp"

#include "srd/engine/engine.hpp"

namespace weft::srd {
namespace {

// What a packet touches of the sending half: all but the table of the paths' latest packets.
constexpr std::size_t kHotOutbound = sizeof(Outbound) - sizeof(Outbound::chain);

}  // namespace

void Engine::prefetch(const PeerKey* from, unsigned step) const {
  switch (step) {
    case 1:
      schedule_.prefetch();
      endpoints_.prefetch();
      if (from != nullptr) {
        peers_.prefetch(*from);
      }
      return;
    case 2:
    case 3:
      break;
    default:
      return;
  }
  const Peer* const next = from != nullptr ? peers_.peek(*from) : schedule_.first_ready();
  if (next == nullptr) {
    return;
  }
  const Peer& peer = *next;
  if (step == 2) {
    weft::prefetch(&peer, sizeof peer);
    return;
  }
  if (peer.in.immediates) {
    weft::prefetch(peer.in.immediates.get(), kCacheLine);
  }
  if (peer.out) {
    weft::prefetch(peer.out.get(), kHotOutbound);
  }
}

}  // namespace weft::srd
