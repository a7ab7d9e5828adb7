// Owns the deliberate defects of the connection manager, for the proof that its tests notice each.
// A mutation names what goes wrong; the code says where.
#pragma once

#include <cstdint>

namespace weft::roce::cm {

enum class Mutation : std::uint8_t {
  none = 0,
  hear_twice,          // a request that comes again is another one
  forget_the_refused,  // so is one whose connection has ended
  ask_for_ever,        // tries are not counted
  ask_once,            // nothing is sent again
  keep_ports,          // of ids that are gone
  keep_ids,            // that go while their connection ends
  say_ready_once,      // a reply that comes again is not answered
  mix_numbers,         // each end sends what it waits for itself
  overfill,            // more requests wait than there is room for
  tell_of_the_gone,    // events of an id outlive it
  leave_silently,      // the peer of an id that goes is not told
  establish_twice,     // a connection is there as often as it is said
  ignore_good_byes,    // once the connection is over
  count,
};

// Outside of the builds that test the tests no mutation exists, and its code is left out.
#ifdef WEFT_MUTATIONS
inline Mutation active_mutation = Mutation::none;
[[nodiscard]] inline bool mutated(Mutation mutation) { return active_mutation == mutation; }
#else
[[nodiscard]] constexpr bool mutated(Mutation) { return false; }
#endif

}  // namespace weft::roce::cm
