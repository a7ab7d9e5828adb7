// Owns virtual time: hosts with real protocol Machines on an emulated network, driven from event to
// event.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emu/fabric/fabric.hpp"
#include "emu/fabric/traffic_matrix.hpp"
#include "emu/sim/frame_store.hpp"
#include "emu/sim/transport.hpp"

namespace weft::sim {

struct SimulationOptions {
  fabric::FabricOptions fabric;
  std::uint16_t data_overhead = 64;  // wire bytes of a data frame beyond its payload
  std::uint16_t control_size = 64;   // wire bytes of any control frame
  // Each data frame takes an entropy of its own, whatever path its transport thinks of: oblivious
  // spraying over more entropies than a transport keeps count of.
  bool fresh_entropies = false;
  bool real_payload = false;  // carry and deliver every byte; otherwise bulk is only its length
  fabric::Picos time_limit = 10'000'000'000'000;  // 10 s
};

struct FlowRecord {
  enum class State : std::uint8_t { waiting, running, done, failed };
  fabric::Picos started = 0;
  fabric::Picos received = fabric::kNoTime;  // the receiver has all
  fabric::Picos finished = fabric::kNoTime;  // the sender knows it
  State state = State::waiting;
};

// Is told what happens in a run; overriding is optional. Time series and traces hang here, so that
// a plain run pays for none of them. Must not touch the simulation beyond reading it.
class SimulationObserver {
 public:
  virtual ~SimulationObserver() = default;
  virtual void on_sample(fabric::Picos /*now*/) {}
  virtual void on_delivered(fabric::Picos /*now*/, fabric::PortId /*to*/,
                            const FrameStore::Head& /*frame*/,
                            const fabric::CalendarEvent& /*event*/) {}
  virtual void on_dropped(fabric::Picos /*now*/, const FrameStore::Head& /*frame*/,
                          const fabric::CalendarEvent& /*event*/, fabric::LossReason /*reason*/,
                          fabric::LinkId /*link*/) {}
  virtual void on_flow(fabric::Picos /*now*/, std::uint32_t /*flow*/, FlowRecord::State /*state*/) {
  }
};

// Everything happens in one thread, inside run_for(), and depends on the arguments alone: the same
// arguments give the same digest on every machine.
//
// A host is served when a frame arrives, when its uplink is free, when its machine's deadline has
// come and when a flow starts. To serve means: the machine's timeouts, then the transport's ended
// flows, then frames for as long as the uplink takes them, then a call-back for the next deadline.
//
// With FabricOptions::by_node hosts may run ahead of each other by less than a link's delay, so
// nothing here may depend on the order of events of different hosts: digests are kept by host, and
// only one host writes each field of a flow's record.
class Simulation {
 public:
  using MakeTransport = std::function<std::unique_ptr<HostTransport>(fabric::PortId)>;

  // Topology and traffic must be valid and outlive the simulation. Hosts without traffic get no
  // transport.
  Simulation(const fabric::Topology& topology, const fabric::TrafficMatrix& traffic,
             const SimulationOptions& options, const MakeTransport& make_transport);

  // At most one observer, set before the run; null removes it. `sample_every` in picoseconds of
  // virtual time; 0: no samples.
  void observe(SimulationObserver* observer, fabric::Picos sample_every);

  // Goes on until all flows have ended or the time limit is reached, but for at most `slice`
  // picoseconds of virtual time; true: the run is over. Slices let the caller show progress and do
  // not change the result.
  bool run_for(fabric::Picos slice);
  void run() {
    while (!run_for(fabric::kNoTime)) {
    }
  }

  [[nodiscard]] fabric::Fabric& fabric() { return fabric_; }
  [[nodiscard]] const fabric::Fabric& fabric() const { return fabric_; }
  [[nodiscard]] fabric::Picos now() const { return fabric_.now(); }
  [[nodiscard]] const std::vector<FlowRecord>& flows() const { return records_; }
  [[nodiscard]] const fabric::TrafficMatrix& traffic() const { return traffic_; }
  [[nodiscard]] std::uint32_t flows_ended() const { return ended_; }
  [[nodiscard]] TransportCounters counters() const;
  // Null for a host without traffic.
  [[nodiscard]] HostTransport* transport(fabric::PortId port) {
    return hosts_[port].transport.get();
  }
  // Everything that happened, in one number: arrivals with their times, ends of flows, totals.
  [[nodiscard]] std::uint64_t digest() const;
  // Fails if a frame is unaccounted for: injected and duplicated ones must be delivered, dropped,
  // or still in the network and in the frame store.
  [[nodiscard]] Result<void> check_conservation() const;
  // Frames that arrived with a wrong bit. All of them are lost: a transport that checks packets is
  // given them and finds the error, for the others the network throws them away.
  [[nodiscard]] std::uint64_t damaged() const { return damaged_; }

  // --- The fabric's sink: called by fabric_ only.
  void deliver(fabric::Picos now, fabric::PortId port, const fabric::CalendarEvent& event);
  void drop(fabric::Picos now, const fabric::CalendarEvent& event, fabric::LossReason reason,
            fabric::LinkId link);
  [[nodiscard]] std::uint32_t duplicate(std::uint32_t handle) { return frames_.copy(handle); }
  void wake(fabric::Picos now, std::uint32_t token);
  void wake_port(fabric::Picos now, fabric::PortId port, std::uint32_t token);
  void paused(fabric::Picos now, fabric::PortId port, bool is_paused);
  // The fabric announces what it will deliver soon, so that memory is in the cache by then.
  void expect_frame(std::uint32_t handle) const { frames_.prefetch(handle); }
  void expect_port(fabric::PortId port, std::uint32_t frame, unsigned step) const {
    const Host& host = hosts_[port];
    if (step == 0) {
      __builtin_prefetch(&host, 1);
    } else if (host.transport != nullptr) {
      host.transport->prefetch(frame == fabric::kNone ? fabric::kNone : frames_.head(frame).from,
                               step - 1);
    }
  }

 private:
  // A port and what runs there. `transport` is null for a host without traffic.
  struct Host {
    std::unique_ptr<HostTransport> transport;
    srd::Machine* machine = nullptr;
    fabric::Picos armed =
        fabric::kNoTime;       // the earliest call-back planned for the machine's deadline
    bool nic_planned = false;  // a call-back comes when the uplink is free
    bool paused = false;
    bool knows_trimming = false;
    std::uint32_t sent = 0;             // frames
    std::uint64_t digest = 0x77656674;  // of what happened here: hosts may run ahead of each other

    void mix(std::uint64_t value) {
      digest = (digest ^ value) * 0x9E3779B97F4A7C15ULL, digest ^= digest >> 29;
    }
  };
  // A trigger of the matrix at work. `flows` are those that wait for it, in the order of the
  // matrix.
  struct TriggerState {
    std::uint32_t activations = 0;
    std::uint32_t next = 0;  // multishot: the flow that comes next
    std::vector<std::uint32_t> flows;
  };
  // What a call-back of the calendar is for; `nic` and `deadline` go to a port, the others to the
  // simulation.
  enum class Token : std::uint32_t { nic = 0, deadline = 1, starts = 2, sample = 3 };

  // See above, at the class. The host must have a transport.
  void serve(fabric::Picos now, fabric::PortId port);
  void transmit(fabric::Picos now, fabric::PortId port, Host& host);
  // Plans a call-back for the machine's deadline, unless an earlier one is planned.
  void arm(fabric::Picos now, fabric::PortId port, Host& host);
  // Ends of flows, and what they trigger.
  void collect(fabric::Picos now, Host& host);
  // Flips one bit, anywhere in the frame; which one follows from the host's digest, so it is the
  // same in each run. Payload is copied first, for it may be shared by all frames.
  void damage(const Host& host, std::span<std::byte> header, std::span<const std::byte>& payload);
  void start_due(fabric::Picos now);
  void start_flow(fabric::Picos now, std::uint32_t flow);
  void activate(fabric::Picos now, std::uint32_t trigger);

  const fabric::TrafficMatrix& traffic_;
  SimulationOptions options_;
  fabric::Fabric fabric_;
  FrameStore frames_;
  std::vector<Host> hosts_;
  std::vector<FlowRecord> records_;
  std::vector<TriggerState> triggers_;
  std::vector<std::uint32_t> by_start_;  // flows with a start time, in its order
  std::size_t next_start_ = 0;
  std::vector<std::uint32_t> starting_;  // by triggers, not yet handed to their hosts
  bool in_start_ = false;
  std::uint32_t ended_ = 0;
  std::uint64_t damaged_ = 0;
  std::vector<std::byte> damaged_payload_;
  srd::TxPacket packet_;
  SimulationObserver* observer_ = nullptr;
  fabric::Picos sample_every_ = 0;
};

}  // namespace weft::sim
