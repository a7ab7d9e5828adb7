// Owns making one text of many.
#pragma once

#include <string>
#include <string_view>

namespace weft {

template <class Texts>
[[nodiscard]] std::string joined(const Texts& texts, std::string_view separator) {
  std::string all;
  bool first = true;
  for (const auto& text : texts) {
    if (!first) {
      all += separator;
    }
    all += text;
    first = false;
  }
  return all;
}

}  // namespace weft
