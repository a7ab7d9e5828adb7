// Owns what the small verbs programs of these tests begin with: how they end when something is not
// as it must be, and the first device.
#pragma once

#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace weft::conformance {

// Says why, and ends the process, which fails the test.
[[noreturn]] inline void give_up(const std::string& why, int code = 1) {
  std::fprintf(stderr, "%s[%d]: %s (errno: %s)\n", program_invocation_short_name,
               static_cast<int>(getpid()), why.c_str(), std::strerror(errno));
  std::_Exit(code);
}
inline void demand(bool good, const char* what) {
  if (!good) {
    give_up(what);
  }
}

// The caller closes it.
enum class Which { first, last };
[[nodiscard]] inline ibv_context* open_device(Which which) {
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  demand(devices != nullptr && count > 0, "there is no device");
  ibv_context* const context = ibv_open_device(devices[which == Which::first ? 0 : count - 1]);
  ibv_free_device_list(devices);
  demand(context != nullptr, "the device cannot be opened");
  return context;
}

[[nodiscard]] inline ibv_context* open_first_device() { return open_device(Which::first); }

}  // namespace weft::conformance
