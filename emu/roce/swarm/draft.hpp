// Owns the choice of requests: what kind, how long, about which memory.
#pragma once

#include "emu/roce/swarm/judge.hpp"

namespace weft::roce::swarm {

inline constexpr std::uint32_t kQkey = 0x11;
inline constexpr std::uint32_t kMaxInline = 64;

// A request as the judge will know it, and as it is posted.
struct Draft {
  PostedRequest request;
  WorkRequest work;
  std::size_t from = 0;        // in End::local
  bool changes_local = false;  // a READ or an atomic
};

[[nodiscard]] Kind draw_kind(Rng& rng, QpType type, double bad_requests);
// Request `number` of end `index`, about slot `slot`.
[[nodiscard]] Draft draft_of(Rng& rng, Connection& connection, std::uint32_t index, Kind kind,
                             std::uint32_t slot, std::uint32_t number);

}  // namespace weft::roce::swarm
