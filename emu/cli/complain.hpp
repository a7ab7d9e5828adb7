// Owns what commands say on standard error.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace weft::cli {

// Unlike fmt::print() this does not throw where nothing can be written: a full disk or a reader
// that left must not change what a command does, or its exit code.
template <class... Args>
void complain(fmt::format_string<Args...> format, Args&&... args) {
  (void)std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stderr);
}

}  // namespace weft::cli
