// Owns the events that an engine tells its observer: for traces, reports and tests, never for
// control.
#pragma once

#include <cstdint>

#include "srd/base/time.hpp"
#include "srd/engine/types.hpp"

namespace weft::srd {

struct Event {
  enum class Kind : std::uint8_t {
    packet_sent,     // detail: attempt
    packet_settled,  // acknowledged
    packet_lost,     // detail: PathEvent
    path_abandoned,
    path_recovered,
    peer_restarted,
    peer_lost,  // status: unresponsive or unreachable
  };
  Kind kind;
  TimePoint when;
  PeerId peer;
  Psn psn;
  PathId path;
  Status status = Status::ok;
  std::uint64_t detail = 0;
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_event(const Event& event) = 0;
};

}  // namespace weft::srd
