// Owns the single-path policy: everything to one peer takes the path that a hash chose.
#pragma once

#include "srd/engine/paths/path_policy.hpp"

namespace weft::srd {

class EcmpPolicy {
 public:
  EcmpPolicy(std::uint16_t paths, std::uint64_t seed) : path_(PathRandom(seed).below(paths)) {}

  [[nodiscard]] PathId pick(TimePoint) const { return PathId{path_}; }
  void on_feedback(TimePoint, PathId, PathEvent, Duration) {}

 private:
  std::uint16_t path_;
};

}  // namespace weft::srd
