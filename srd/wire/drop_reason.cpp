// Owns the texts of the reasons.
#include "srd/wire/drop_reason.hpp"

namespace weft::srd {

const char* to_string(DropReason reason) {
  switch (reason) {
    case DropReason::none:
      return "none";
    case DropReason::too_short:
      return "too_short";
    case DropReason::bad_version:
      return "bad_version";
    case DropReason::bad_type:
      return "bad_type";
    case DropReason::reserved_bits:
      return "reserved_bits";
    case DropReason::bad_path:
      return "bad_path";
    case DropReason::zero_life:
      return "zero_life";
    case DropReason::bad_length:
      return "bad_length";
    case DropReason::bad_message:
      return "bad_message";
    case DropReason::bad_window:
      return "bad_window";
    case DropReason::bad_sack:
      return "bad_sack";
    case DropReason::bad_result:
      return "bad_result";
    case DropReason::trimmed_control:
      return "trimmed_control";
    case DropReason::trimmed_without_psn:
      return "trimmed_without_psn";
    case DropReason::missing_checksum:
      return "missing_checksum";
    case DropReason::bad_checksum:
      return "bad_checksum";
    case DropReason::not_for_us:
      return "not_for_us";
    case DropReason::stale_source_life:
      return "stale_source_life";
    case DropReason::stale_destination_life:
      return "stale_destination_life";
    case DropReason::unverified_life:
      return "unverified_life";
    case DropReason::peer_table_full:
      return "peer_table_full";
    case DropReason::outside_window:
      return "outside_window";
    case DropReason::duplicate:
      return "duplicate";
    case DropReason::ack_for_nothing:
      return "ack_for_nothing";
    case DropReason::ack_not_sent:
      return "ack_not_sent";
    case DropReason::unknown_read:
      return "unknown_read";
    case DropReason::read_out_of_bounds:
      return "read_out_of_bounds";
  }
  return "unknown";
}

}  // namespace weft::srd
