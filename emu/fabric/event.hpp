// Owns the unit of the network's plan: one event at one time.
#pragma once

#include <cstdint>

#include "emu/fabric/picos.hpp"

namespace weft::fabric {

// A frame's way through the network is a chain of events, one per hop: when one happens, the next
// is planned. Everything that a hop needs is in the event, so that switching a frame touches no
// memory of the frame itself.
struct CalendarEvent {
  // hop: a frame has crossed `via`. late: the same, after a fault or a paused host held it back.
  // wake, wake_port: a call of the sink. fault: an occurrence of a fault begins or ends.
  enum class Kind : std::uint8_t { hop, late, wake, wake_port, fault };
  Picos when = 0;
  std::uint32_t frame = 0;        // frames: their owner's handle; wakes: the token; fault: index
  std::uint32_t destination = 0;  // port
  std::uint32_t hash = 0;         // of the flow and its path
  std::uint32_t via = 0;          // the link whose far end the frame reaches
  std::uint32_t next = 0;         // the link it is then queued on; unused at its destination
  std::uint16_t size = 0;         // bytes on the wire
  Kind kind = Kind::hop;
  std::uint8_t flags = 0;
};
static_assert(sizeof(CalendarEvent) == 32);

}  // namespace weft::fabric
