// Owns finding what a misspelled word was meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace weft::fabric {

// The one of `words` that `word` was probably meant to be; empty if none is near.
[[nodiscard]] std::string nearest_word(std::string_view word, std::span<const std::string> words);

}  // namespace weft::fabric
