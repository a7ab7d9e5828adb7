// Owns the verbs' own way of failing: a value or an errno, as real devices and their kernels
// answer.
#pragma once

#include <cerrno>
#include <tl/expected.hpp>

namespace weft::emu::nic {

// The text that a person reads is written by the libraries above (strerror); the number is the
// interface.
template <class T>
using Outcome = tl::expected<T, int>;

[[nodiscard]] inline tl::unexpected<int> refuse(int error) { return tl::unexpected<int>(error); }

}  // namespace weft::emu::nic
