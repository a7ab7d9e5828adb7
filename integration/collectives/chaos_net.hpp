// Owns a plugin that is used as awkwardly as the interface allows.
//
// What is refused or delayed is drawn from a seed. That makes a failure likely to come again, but
// not certain: how often a rank calls test() before something ends depends on the other processes.
#pragma once

#include <cstdint>
#include <memory>

#include "integration/collectives/net.hpp"

namespace weft::collectives {

// The caller is told "not now" where the plugin was not even asked; requests are tested late, and
// in any order. Whatever comes of that is right all the same.
[[nodiscard]] std::unique_ptr<Net> add_chaos(std::unique_ptr<Net> net, std::uint64_t seed);

}  // namespace weft::collectives
