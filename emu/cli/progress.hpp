// Owns showing the steps of a command that takes a while.
#pragma once

#include <unistd.h>

#include <functional>
#include <string>

#include "emu/cli/complain.hpp"

namespace weft::cli {

// On a terminal a text that is not the last of its step is written over by the next one; elsewhere
// it is left out.
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
