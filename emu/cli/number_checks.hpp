// Owns checks of options that are numbers, which say what they want in words.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>

namespace weft::cli {

// As CLI::Range, which lets "nan" pass: it is neither below the one nor above the other.
[[nodiscard]] inline CLI::Validator real_range(double least, double most) {
  const CLI::Validator range = CLI::Range(least, most);
  return CLI::Validator(
      [range](std::string& text) {
        std::string wrong = range(text);
        double value = 0;
        if (wrong.empty() && CLI::detail::lexical_cast(text, value) && std::isnan(value)) {
          wrong = "Value " + text + " is no number";
        }
        return wrong;
      },
      range.get_description());
}

// As CLI::PositiveNumber, which names the largest number there is.
[[nodiscard]] inline CLI::Validator positive() {
  return CLI::Validator(
      [](std::string& text) {
        double value = 0;
        const bool is = CLI::detail::lexical_cast(text, value) && value > 0;
        return is ? std::string() : "'" + text + "' is not a number above 0";
      },
      "POSITIVE");
}

}  // namespace weft::cli
