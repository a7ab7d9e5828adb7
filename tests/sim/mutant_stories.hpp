// Owns the stories that show breaches which the swarm would take for bad luck. Each is true if the
// engine did well.
#pragma once

namespace weft::testing {

[[nodiscard]] bool one_sided_work_ends_with_its_life();
[[nodiscard]] bool keys_end_with_their_life();
[[nodiscard]] bool late_answers_land_nowhere();
[[nodiscard]] bool cancelled_reads_end_at_their_responder();
[[nodiscard]] bool both_ends_full_make_progress();
[[nodiscard]] bool small_reads_do_not_wait_behind_bulk();
[[nodiscard]] bool refused_immediates_hold_up_nobody();
[[nodiscard]] bool refused_immediates_complete_in_the_end();
[[nodiscard]] bool oldest_packet_finds_a_place();
[[nodiscard]] bool refusals_show_losses();
[[nodiscard]] bool marks_of_a_burst_are_heard();

}  // namespace weft::testing
