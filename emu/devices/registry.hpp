// Owns the list of the kinds of devices that there are.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "emu/devices/personality.hpp"

namespace weft::devices {

// The same in every process of a run: weft, weftd and programs.
[[nodiscard]] std::span<const Personality* const> all_kinds();

// The kind for commands that name none: the first of the list.
[[nodiscard]] const Personality& default_kind();

// Null: there is no such kind.
[[nodiscard]] const Personality* find_kind(std::string_view kind);

// For messages: their names, with commas.
[[nodiscard]] std::string names_of_kinds();

}  // namespace weft::devices
