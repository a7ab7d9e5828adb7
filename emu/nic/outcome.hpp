// Owns the result of a verb on the control path: a value or an errno, as the kernel answers.
#pragma once

#include <cerrno>
#include <tl/expected.hpp>

namespace weft::nic {

// The number is the interface; the libraries above turn it into a text (strerror).
template <class T>
using Outcome = tl::expected<T, int>;

[[nodiscard]] inline tl::unexpected<int> refuse(int error) { return tl::unexpected<int>(error); }

}  // namespace weft::nic
