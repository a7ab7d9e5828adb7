// Owns what all calls of NCCL share: finding their device, and turning outcomes and exceptions into
// NCCL's results.
#pragma once

#include <string>

#include "integration/nccl/plugin.hpp"

namespace weft::nccl::plugin {

// Starts the device at its first use. nullptr: there is no such device, or it cannot be started;
// the reason is in NCCL's log. The PluginNic lives until the last finalize().
[[nodiscard]] PluginNic* nic_of(int index);
// This process is the child of one that had a device up.
[[nodiscard]] bool forked();
// Writes to NCCL's log. The caller must not hold a PluginNic's lock: NCCL's logger is foreign code.
void warn(const std::string& text);
[[nodiscard]] abi::Result result_of(Outcome outcome);

// Wraps every function that NCCL calls: through a C function pointer no exception may leave. In a
// child forked while a device was up, every call fails instead of using the parent's rings.
template <class F>
abi::Result guarded(F&& f) {
  try {
    return forked() ? abi::kSystemError : f();
  } catch (...) {
    return abi::kInternalError;
  }
}

}  // namespace weft::nccl::plugin
