// Owns the names of everything that can be wrong with an arriving packet; docs/wire.md section 5
// explains each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::srd {

// The counter of each is "rx_drop_" followed by its name.
enum class DropReason : std::uint8_t {
  none = 0,
  // The packet by itself [wire 5.1]: found by parse_packet() and verify_checksum().
  too_short,
  bad_version,
  bad_type,
  reserved_bits,
  bad_path,
  zero_life,
  bad_length,
  bad_message,
  bad_window,
  bad_sack,
  bad_result,
  trimmed_control,
  trimmed_without_psn,
  missing_checksum,
  bad_checksum,
  // The packet against what the receiver knows [wire 5.2].
  not_for_us,
  stale_source_life,
  stale_destination_life,
  unverified_life,
  peer_table_full,
  outside_window,
  duplicate,
  ack_for_nothing,
  ack_not_sent,
  unknown_read,
  read_out_of_bounds,
};
inline constexpr std::size_t kDropReasons =
    static_cast<std::size_t>(DropReason::read_out_of_bounds) + 1;

// The name above; "none" for none.
[[nodiscard]] const char* to_string(DropReason reason);

}  // namespace weft::srd
