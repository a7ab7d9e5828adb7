// Owns the one alias for "a value or an error", and the error that set-up and configuration code
// returns.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace weft {

enum class ErrorCode {
  invalid_argument,
  not_found,
  already_exists,
  out_of_resources,
  queue_full,
  not_permitted,
  wrong_state,
  io_error,
  parse_error,
};

// For control paths, where a person reads the text: what was wrong, where, and what to do. Hot
// paths return bool, count or a Status and never build one of these.
struct Error {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

}  // namespace weft
