// Owns putting any text into a line for a shell.
#pragma once

#include <string>
#include <string_view>

namespace weft::cli {

// The text as one word of any POSIX shell: within single quotes only the quote itself is special.
[[nodiscard]] inline std::string shell_quoted(std::string_view text) {
  std::string word = "'";
  for (const char c : text) {
    word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return word + "'";
}

}  // namespace weft::cli
