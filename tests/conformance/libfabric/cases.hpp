// Owns the list of what libfabric programs can be asked to do: each case is run by all ranks at
// once, and every byte is checked.
#pragma once

#include <span>

namespace weft::conformance {

struct Case {
  const char* name;
  void (*run)();
};

[[nodiscard]] std::span<const Case> message_cases();
[[nodiscard]] std::span<const Case> remote_cases();
[[nodiscard]] std::span<const Case> atomic_cases();
[[nodiscard]] std::span<const Case> endpoint_cases();

}  // namespace weft::conformance
