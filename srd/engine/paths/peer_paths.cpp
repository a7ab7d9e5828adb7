// Owns how a choice of the policy is corrected by the health of the paths.
#include "srd/engine/paths/peer_paths.hpp"

namespace weft::srd {
namespace {

// How often the policy is asked again before the paths are searched: it knows better than a search.
constexpr int kRedraws = 4;

}  // namespace

PathId PeerPaths::avoid_bad(TimePoint now, PathId path) {
  if (health_.cautious(now)) {
    for (int i = 0; i < kRedraws && !health_.proven(path); ++i) {
      path = selector_.pick(now);
    }
    path = health_.find_proven(path);
  }
  for (int i = 0; i < kRedraws && !health_.usable(now, path); ++i) {
    path = selector_.pick(now);
  }
  return health_.usable(now, path) ? path : health_.find_usable(now, path);
}

PathId PeerPaths::pick_other_than(TimePoint now, PathId lost_on, bool surest) {
  if (const auto witness = health_.witness(); surest && witness && *witness != lost_on) {
    return *witness;
  }
  PathId path = pick(now);
  for (int i = 0; i < kRedraws && path == lost_on; ++i) {
    path = pick(now);
  }
  if (path == lost_on) {  // a policy that holds on to one path, or bad luck
    const auto next = static_cast<std::uint16_t>((path.value() + 1) % paths());
    path = health_.find_usable(now, PathId{next});
  }
  return path;
}

}  // namespace weft::srd
