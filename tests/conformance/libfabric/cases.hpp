// Owns the list of what a pair of libfabric programs can be asked to do.
#pragma once

#include <span>

namespace weft::conformance {

struct Case {
  const char* name;
  void (*run)();
};

[[nodiscard]] std::span<const Case> all_cases();

}  // namespace weft::conformance
