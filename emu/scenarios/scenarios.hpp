// Owns access to the scenarios that are part of the program.
#pragma once

#include <span>
#include <string_view>
#include <utility>

namespace weft::scenarios {

// Name and text of each, in the order of their names.
[[nodiscard]] std::span<const std::pair<std::string_view, std::string_view>> built_in_scenarios();

// The evaluation grid of `weft sim --grid`.
[[nodiscard]] std::string_view built_in_grid();

}  // namespace weft::scenarios
