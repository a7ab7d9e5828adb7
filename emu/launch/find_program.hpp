// Owns the search of PATH.
#pragma once

#include <string>

namespace weft::launch {

// The full name of the program that PATH finds by this name, or nothing. What cannot be executed is
// passed over, as a shell does.
[[nodiscard]] std::string find_program(const std::string& name);

}  // namespace weft::launch
