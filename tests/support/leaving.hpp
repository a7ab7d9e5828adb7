// Owns the end of a process as make_last_rounds() makes it, on the laboratory's clock.
#pragma once

#include <algorithm>

#include "tests/support/lab.hpp"

namespace weft::testing {

// Returns how long it took.
inline Duration say_last_words(Lab& lab, Node& node) {
  constexpr Duration kLongest = 100ms;
  const TimePoint begin = lab.now();
  for (Duration wait = 1ms; lab.now() - begin < kLongest; wait *= 2) {
    node.engine().take_leave(lab.now(), wait == 1ms ? srd::Leave::begin : srd::Leave::ask_again);
    lab.world().pump();
    const Duration rest = kLongest - (lab.now() - begin);
    if (lab.run_until([&] { return !node.engine().is_awaited(); }, std::min(wait, rest))) {
      break;
    }
  }
  node.engine().stop_waiting();
  node.engine().take_leave(lab.now(), srd::Leave::look);
  lab.world().pump();
  return lab.now() - begin;
}
inline Duration leave(Lab& lab, Node& node) {
  const Duration took = say_last_words(lab, node);
  lab.crash(node);
  return took;
}

}  // namespace weft::testing
