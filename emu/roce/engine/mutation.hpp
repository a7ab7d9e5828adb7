// Owns the deliberate defects of the engine, for the proof that its tests notice each.
#pragma once

#include <cstdint>

namespace weft::roce {

enum class Mutation : std::uint8_t {
  none = 0,
  repeat_atomics,        // a duplicate atomic is executed again
  repeat_sends,          // a duplicate SEND is executed again
  forget_gap,            // a packet ahead is executed
  acknowledge_reads,     // an ACK completes a READ whose data has not come
  ignore_remote_rights,  // rights and bounds of a peer's key are not looked at
  misplace,              // the second packet of a write lands four bytes later
  skip_fence,            // a fenced request does not wait
  retry_for_ever,        // the retry count is not counted
  forget_flush,          // requests behind a failed one stay without completion
  stale_replay,          // a replayed READ begins at its first packet
  forget_rnr,            // a receiver that is not ready acknowledges
  lose_timer,            // the retransmission timer is never armed
  lose_datagrams,        // some that a receive was posted for vanish
  give_up_early,         // the first silence is taken for the last
  impatient,             // so is the first receiver that is not ready
  keep_receives,         // those of a queue pair in error never complete
  acknowledge_further,   // a repeated SEND is acknowledged up to the READ behind it
  share_gathered,        // packets of a burst share the place that pieces are gathered in
  count,
};

// Outside of the builds that test the tests no mutation exists, and its code is left out.
#ifdef WEFT_MUTATIONS
inline Mutation active_mutation = Mutation::none;
[[nodiscard]] inline bool mutated(Mutation mutation) { return active_mutation == mutation; }
#else
[[nodiscard]] constexpr bool mutated(Mutation) { return false; }
#endif

}  // namespace weft::roce
