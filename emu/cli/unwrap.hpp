// Owns the step from a Result to an exception, which main() reports.
#pragma once

#include <stdexcept>
#include <type_traits>
#include <utility>

#include "srd/base/result.hpp"

namespace weft::cli {

// The value, or a std::runtime_error with the error's message. For errors that end the command;
// where an error decides what happens next, the Result is looked at instead.
template <class T>
T unwrap(Result<T> result) {
  if (!result) {
    throw std::runtime_error(result.error().message);
  }
  if constexpr (!std::is_void_v<T>) {
    return std::move(*result);
  }
}

}  // namespace weft::cli
