// Owns the names and the meaning of a soft-RoCE device's counters.
#pragma once

#include "emu/kernel/statistics.hpp"

namespace weft::devices::rxe {

// A device counts itself in a roce::Counters.
class RxeCounters final : public kernel::CounterSet {
 public:
  void visit(Place place, const kernel::Statistics& statistics, const Visit& visit) const override;
  [[nodiscard]] kernel::Traffic traffic(const kernel::Statistics& statistics) const override;
};

inline constexpr RxeCounters kCounters;

}  // namespace weft::devices::rxe
