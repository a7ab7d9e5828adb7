// Owns the always-on check: a failed one is a bug in weft, never a consequence of input.
#pragma once

namespace weft {

[[noreturn]] void check_failed(const char* expression, const char* file, int line);

}  // namespace weft

#define WEFT_CHECK(expression)                               \
  do {                                                       \
    if (!(expression)) [[unlikely]] {                        \
      ::weft::check_failed(#expression, __FILE__, __LINE__); \
    }                                                        \
  } while (false)
