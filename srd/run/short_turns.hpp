// Owns requests to the scheduler: short time slices, punctual timers.
#pragma once

#include <sched.h>

namespace weft::srd {

// A thread that yields waits until the other threads of its core have used up a time slice,
// milliseconds by default. With short slices of its own it is scheduled again soon. Takes effect
// once per thread; on kernels without this request (Linux before 6.12) nothing happens.
void ask_for_short_turns();

// Timed waits of this thread end when they are due; by default up to 50 us later (timer slack).
void ask_for_punctual_timers();

// Lets another thread run, for a short while.
inline void give_way() {
  ask_for_short_turns();
  ::sched_yield();
}

}  // namespace weft::srd
