// Owns the names and the meaning of an EFA device's counters.
#pragma once

#include "emu/kernel/statistics.hpp"

namespace weft::devices::efa {

// A device counts itself in a srd::Counters.
class EfaCounters final : public kernel::CounterSet {
 public:
  void visit(Place place, const kernel::Statistics& statistics, const Visit& visit) const override;
  // Bit maps of paths are combined by OR.
  void add(kernel::OwnCounters& sum, const kernel::OwnCounters& more) const override;
  [[nodiscard]] kernel::Traffic traffic(const kernel::Statistics& statistics) const override;
};

inline constexpr EfaCounters kCounters;

}  // namespace weft::devices::efa
