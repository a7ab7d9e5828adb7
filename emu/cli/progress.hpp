// Owns showing the steps of a command that takes a while.
#pragma once

#include <unistd.h>

#include <functional>
#include <string>

#include "emu/cli/complain.hpp"

namespace weft::cli {

// Returns a function that shows the steps of `command` on standard error. `last`: the text is the
// last of its step and stays. Others are written over by the next text on a terminal, and left out
// elsewhere.
inline std::function<void(const std::string& text, bool last)> progress_of(
    const std::string& command) {
  return [command](const std::string& text, bool last) {
    if (::isatty(STDERR_FILENO) != 0) {
      complain("\r\033[K{}: {}{}", command, text, last ? "\n" : "");
    } else if (last) {
      complain("{}: {}\n", command, text);
    }
  };
}

}  // namespace weft::cli
