// Owns how long open requests may take once all faults have ended.
#pragma once

#include <deque>

#include "emu/swarm/judge.hpp"
#include "emu/swarm/plan.hpp"

namespace weft::swarm {

// Derived from the configurations: first, every sender that waits tries again; then the open
// requests leave, flow by flow, at one packet per round trip at least, through ports of the link's
// rate, into receives that applications post when they poll. A request that is still open after
// that is taken for lost.
[[nodiscard]] Duration longest_wait(const Plan& plan, const std::deque<PostedRequest>& requests);

}  // namespace weft::swarm
