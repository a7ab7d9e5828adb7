// Owns wishes to the scheduler: short turns, punctual timers.
#pragma once

#include <sched.h>

namespace weft::srd {

// A thread that yields gives up what is left of its turn, milliseconds by default, and waits for
// whoever shares its core to use that much. With short turns it comes back soon. Once per thread;
// where the kernel knows no such wish (Linux before 6.12) nothing happens.
void ask_for_short_turns();

// This thread's timers ring when they are due; ordinarily up to 50 us later.
void ask_for_punctual_timers();

// Lets somebody else run, for a short while.
inline void give_way() {
  ask_for_short_turns();
  ::sched_yield();
}

}  // namespace weft::srd
