// Owns the deliberate bugs by which the tests prove that they would notice real ones.
#pragma once

#include <cstdint>

namespace weft::srd {

// Each is one rule of the engine that is broken, or of what surrounds it in the swarm. They exist
// only in the library that the mutant test builds for itself; everywhere else mutated() is the
// constant false.
enum class Mutation : std::uint8_t {
  none,
  deliver_copies,              // a duplicate is executed once more
  ignore_copies,               // a duplicate is not acknowledged
  forget_source_life,          // packets of the peer's former lives are accepted
  forget_destination_life,     // packets for our former lives are accepted
  keep_window_of_former_life,  // a restarted peer's numbers are judged by the old window
  keep_work_for_new_life,      // what a former life may have executed is sent to the next one
  one_sided_survives_restart,  // reads and writes for a former life are sent to the next one
  regular_keys,                // the keys of each life begin with the same number
  reuse_read_numbers,          // a read has the number of one that has ended
  hide_cancelled_reads,        // a responder is not told that its answer is no longer wanted
  shared_completion_budget,    // requests under way take the room of what arrives
  reads_behind_bulk,           // the answer to a read waits behind the longest messages
  immediate_table_unfair,      // messages that were refused or given up keep their places
  edge_finds_no_place,    // the oldest packet that is missing waits for a place like all others
  refusals_show_nothing,  // that a packet was refused says nothing of those that left before it
  omit_completes,         // a retry does not say that it completes its message
  marks_in_bursts_count_once,  // of several marks that one acknowledgement tells, one counts
  runs_come_back_whole,        // each packet of a run brings its path back
  notice_to_known_life,        // a notice of a stale life goes to the life that we know
  loose_bounds,                // eight bytes beyond a region are within it
  skip_access,                 // access rights are not looked at
  skip_domain,                 // protection domains are not looked at
  skip_key_generation,         // the key of an erased region opens its successor
  skip_qkey,                   // the queue key is not looked at
  accept_damage,               // checksums are not looked at
  complete_twice,              // a write completes a second time
  lose_status,                 // a refusal counts as success
  retry_without_end,           // the receiver-not-ready limit is forgotten
  back_off_without_end,        // each refusal doubles the wait, however long it is already
  acknowledge_too_much,  // the cumulative acknowledgement is one too high while there is a gap
  acknowledge_without_window,  // the answer to a first probe claims that everything before 0
                               // arrived
  acknowledge_unplaced,        // a write is acknowledged without having been placed
  misplace,                    // the second packet of a write says the wrong address
  settle_lost,                 // what is lost is taken for delivered
  forget_flush,                // closing an endpoint leaves its requests alone
  count_copies,                // a duplicate counts towards a write's immediate data
  announce_early,              // immediate data is delivered with the first packet
  lose_immediate,              // immediate data is dropped
  count_reads_twice,           // a read is complete when half of it is there
  ignore_read_failure,         // a read whose region went away counts as answered well
  never_abandon_paths,         // a dead path stays in use
  retransmit_on_same_path,     // what was lost is sent the same way again
  reuse_buffers,               // a receive is completed but stays posted
  place_copies,                // the bytes of a duplicate are placed once more
  spill_message,               // a byte behind a message is written
  refusal_takes_receive,       // a message that is too long takes the receive
  doubt_receives,              // a receiver says that it is not ready, and is
  blame_restart,               // work for the present life ends like work for the former one
  blame_keys,                  // a peer that came back is refused with the right key
  wait_for_one,                // a peer that cannot be sent to holds up the others
  ask_for_nothing,             // a peer that owes nothing is asked for a sign of life
  wrong_sender,                // the completion of a message names another endpoint
  remember_strangers,          // a peer that was never verified keeps a place
  trimmed_life_counts,         // a trimmed packet of a later life ends the one that is known
  answer_one_probe,            // of probes that arrive together one is answered
  shortest_bulk_first,         // a longer message waits until all shorter ones have left
  starve_bulk,                 // a long message waits until all of one packet have left
  endless_turn,                // a peer's turn ends when nothing more may leave for it
  favour_one_endpoint,         // what one endpoint posts passes what others have posted
  impatient,                   // a peer is given up after half of the time
  refuse_while_unpolled,       // a receiver is not ready while its application has to poll
  refuse_early,                // work is refused when half of what is allowed is under way
  complete_without_bound,      // receives complete though their completions have no room
  keep_deadlines,              // a deadline that has passed is not served
  // --- Of the virtual network, and of the judge
  lose_uncounted,      // a packet that is lost is not counted
  explain_everything,  // what succeeded ends in an error, and the judge finds a reason
  count,
};

#ifdef WEFT_MUTATIONS
inline Mutation active_mutation = Mutation::none;
[[nodiscard]] inline bool mutated(Mutation mutation) { return active_mutation == mutation; }
#else
[[nodiscard]] constexpr bool mutated(Mutation) { return false; }
#endif

}  // namespace weft::srd
