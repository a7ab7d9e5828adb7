// Owns how long the requests that are open may take once nothing is wrong any more.
#pragma once

#include <deque>

#include "emu/swarm/judge.hpp"
#include "emu/swarm/plan.hpp"

namespace weft::swarm {

// From the times of the configurations: whoever waits tries again, and then what is open leaves
// flow by flow, at a packet for each round trip at least, through ports of the link's rate, into
// receives that applications post when they look.
[[nodiscard]] Duration longest_wait(const Plan& plan, const std::deque<Request>& requests);

}  // namespace weft::swarm
