// Owns two tap devices on one bridge, in a network namespace that lives as long as they do.
#pragma once

#include <utility>

#include "srd/io/posix.hpp"

namespace weft::srd::test {

// Throws std::runtime_error with the reason where this machine does not let us.
[[nodiscard]] std::pair<UniqueFd, UniqueFd> bridged_taps();

}  // namespace weft::srd::test
