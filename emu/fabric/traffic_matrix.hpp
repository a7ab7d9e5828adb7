// Owns the description of traffic: flows, and the triggers by which the end of one starts others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emu/fabric/picos.hpp"
#include "emu/fabric/topology.hpp"

namespace weft::fabric {

// One message of `bytes` bytes from port to port.
struct FlowSpec {
  PortId source = 0;
  PortId destination = 0;
  Bytes bytes = 0;
  Picos start = 0;                    // only without a trigger
  std::uint32_t trigger = kNone;      // index into triggers: what starts it
  std::uint32_t on_sent = kNone;      // trigger activated when the sender knows that all arrived
  std::uint32_t on_received = kNone;  // trigger activated when the receiver has all
  std::uint32_t group = 0;            // reports tell groups apart
};

struct TriggerSpec {
  enum class Kind : std::uint8_t {
    oneshot,    // its one activation starts all its flows
    multishot,  // each activation starts the next one of its flows
    barrier,    // the count-th activation starts all its flows
  };
  Kind kind = Kind::oneshot;
  std::uint32_t count = 1;
};

struct TrafficMatrix {
  std::uint32_t nodes = 0;
  std::vector<FlowSpec> flows;
  std::vector<TriggerSpec> triggers;
  std::vector<std::string> groups{"flows"};
};

// Reads htsim's connection matrices (`.cm`). Failure lines are refused: weft's faults are richer.
[[nodiscard]] Result<TrafficMatrix> read_htsim_matrix(const std::string& file_name,
                                                      const std::string& text);
// Every flow must join two different ports that exist, and name triggers that exist.
[[nodiscard]] Result<void> validate(const TrafficMatrix& matrix, std::uint32_t ports);

}  // namespace weft::fabric
