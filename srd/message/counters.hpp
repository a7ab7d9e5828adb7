// Owns the messenger's counters.
#pragma once

#include <cstdint>

namespace weft::srd {

struct MessageCounters {
  std::uint64_t eager_sent = 0;        // messages that left with their bytes
  std::uint64_t requests_sent = 0;     // messages whose bytes the receiver was asked to read
  std::uint64_t converted = 0;         // of these: refused as eager because the receiver was full
  std::uint64_t received = 0;          // messages given to posted receives
  std::uint64_t unexpected = 0;        // messages that found no posted receive at their turn
  std::uint64_t out_of_order = 0;      // messages that arrived before their turn
  std::uint64_t truncated = 0;         // messages longer than their receive
  std::uint64_t partner_failures = 0;  // times that everything to one partner was ended
  // What arrived and was dropped:
  std::uint64_t malformed = 0;       // not a message
  std::uint64_t stale = 0;           // meant for a former life of ours, or its sender is gone
  std::uint64_t out_of_window = 0;   // sequence numbers that no correct sender uses now
  std::uint64_t refused = 0;         // a table was full; the sender of a request is told
  std::uint64_t unknown_answer = 0;  // an answer to nothing
};

}  // namespace weft::srd
