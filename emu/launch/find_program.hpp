// Owns finding what others have installed: programs, and plug-ins of libibverbs.
#pragma once

#include <string>

namespace weft::launch {

// The full name of the program that PATH finds by this name, or nothing. What cannot be executed is
// passed over, as a shell does.
[[nodiscard]] std::string find_program(const std::string& name);
// The name of the file by which libibverbs knows devices of that kind ("efa", "rxe"), or nothing.
// Without one it sees the devices and cannot open them.
[[nodiscard]] std::string find_provider(const std::string& kind);

}  // namespace weft::launch
