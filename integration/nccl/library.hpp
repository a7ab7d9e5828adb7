// Owns what all calls of NCCL share: the devices, and what becomes of a call.
#pragma once

#include <string>

#include "integration/nccl/plugin.hpp"

namespace weft::nccl::plugin {

// Devices come up when they are first used, not when they are listed. nullptr: it is not there.
[[nodiscard]] Nic* nic_of(int index);
// This process is the child of one that had a device up.
[[nodiscard]] bool forked();
// Into NCCL's log.
void warn(const std::string& text);
[[nodiscard]] abi::Result result_of(Outcome outcome);

// NCCL calls through C function pointers, so no exception may leave. In a forked child every call
// fails once a device was up in the parent.
template <class F>
abi::Result guarded(F&& f) {
  try {
    return forked() ? abi::kSystemError : f();
  } catch (...) {
    return abi::kInternalError;
  }
}

}  // namespace weft::nccl::plugin
