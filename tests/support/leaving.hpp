// Owns the end of a process as make_last_rounds() makes it, on the laboratory's clock.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/lab.hpp"

namespace weft::testing {

// A message each way: both processes have something to tell the other one when they end.
inline void exchange(Pair& pair) {
  pair.a.receive();
  pair.b.receive();
  pair.a.send(pair.b, "there");
  pair.b.send(pair.a, "and back");
  ASSERT_TRUE(pair.run_until_idle());
}
// Whether a peer may not have heard of everything.
inline bool begin_to_leave(Lab& lab, Node& node) {
  node.engine().take_leave(lab.now(), srd::Leave::begin);
  return node.engine().is_awaited();
}
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
  node.engine().take_leave(lab.now(), srd::Leave::end);
  lab.world().pump();
  return lab.now() - begin;
}
inline Duration leave(Lab& lab, Node& node) {
  const Duration took = say_last_words(lab, node);
  lab.crash(node);
  return took;
}

}  // namespace weft::testing
