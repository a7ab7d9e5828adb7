// Owns the figures of a running network at one moment: copied out of the forwarding thread in one
// call, and turned into text by the control thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "emu/daemon/forwarder.hpp"
#include "emu/fabric/fabric.hpp"
#include "srd/io/frame_io.hpp"

namespace weft::daemon {

struct ModelledFigures {
  fabric::FabricTotals totals;
  std::size_t inside = 0;  // frames
  std::size_t memory = 0;  // reserved for them
  std::vector<fabric::LinkCounters> links;
};

struct NetworkFigures {
  struct Process {
    const PlantNic* nic = nullptr;
    std::uint16_t id = 0;
    std::uint32_t first_qpn = 0;
    srd::Life life;
    std::int32_t pid = 0;
    SlotCounters counters;
  };
  struct Port {
    srd::FrameCounters counters;
    bool is_up = true;
    std::uint64_t dropped = 0;
  };
  SwitchboardCounters counters;
  ForwarderCounters forwarder;
  std::vector<Process> processes;  // by NIC and number
  std::vector<Port> ports;
  std::optional<ModelledFigures> modelled;
  std::uint64_t captured = 0;
  std::uint64_t capture_skipped = 0;
  std::uint64_t capture_dropped = 0;
};

}  // namespace weft::daemon
