// Owns weftd's control protocol: what a line of JSON asks for, and the line that answers it.
#pragma once

#include <string>

namespace weft::emu {

class Daemon;

// Any bytes may come; the answer is always one line of JSON.
[[nodiscard]] std::string answer_control(Daemon& daemon, const std::string& line);

}  // namespace weft::emu
