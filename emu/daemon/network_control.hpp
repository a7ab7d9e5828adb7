// Owns what the control thread may ask of the network: each is a call that the forwarding thread
// executes between two rounds; whatever takes long is done before or after the call. Only the
// control thread uses it, or the thread that builds weftd before there are two.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emu/attach/protocol.hpp"
#include "emu/daemon/capture.hpp"
#include "emu/daemon/event_log.hpp"
#include "emu/daemon/forwarder.hpp"
#include "emu/daemon/impairments.hpp"
#include "emu/daemon/network_figures.hpp"
#include "emu/daemon/plant.hpp"
#include "srd/base/result.hpp"

namespace weft::daemon {

class NetworkControl {
 public:
  struct Options {
    std::uint64_t seed = 1;
    double dilation = 1;
    std::size_t max_frame = 0;
  };
  NetworkControl(Forwarder& forwarder, EventLog& events, Options options)
      : forwarder_(forwarder), events_(events), options_(options) {}

  // --- Processes.

  // Frames are forwarded from and to that slot from now on. Pointers to it stay valid until take().
  // False: its bell could not be watched.
  [[nodiscard]] bool add(std::unique_ptr<Slot> slot);
  // Frames in its ring are still forwarded; then comes a Notice::Kind::drained.
  void retire(Slot& slot);
  [[nodiscard]] std::unique_ptr<Slot> take(Slot& slot);
  // The process answers to that service of its NIC from now on, or does not any more. False:
  // another one does.
  bool serve(Slot& slot, std::uint64_t service, bool wanted);
  // Packets to that multicast group are for the process, or not any more. False: it is in too many,
  // or the address is no group's.
  bool group(Slot& slot, const srd::Address& address, bool wanted);
  // Makes these processes read their control sockets.
  void raise_notices(std::span<Slot* const> slots);
  // A direct ring of these slots has ended: their next frames may ask for new ones.
  void forget_flows(std::span<Slot* const> slots);
  // Called when an ideal network has become a modelled one: direct rings have to be taken back.
  void set_on_modelled(std::function<void()> on_modelled) { on_modelled_ = std::move(on_modelled); }

  // --- The network.

  // The number of the port, by which it is removed.
  [[nodiscard]] Result<std::size_t> add_port(const std::string& name,
                                             std::unique_ptr<srd::FrameIo> io, const PlantNic* nic);
  [[nodiscard]] std::unique_ptr<srd::FrameIo> remove_port(std::size_t port);
  void start_fabric(fabric::Topology topology);
  // In effect from now on. An ideal network becomes a star of fast links first: h1->fabric, ...
  [[nodiscard]] Result<std::uint32_t> apply(const fabric::Fault& fault);
  [[nodiscard]] Result<void> end_fault(std::uint32_t fault);
  [[nodiscard]] Impairments& impairments() { return impairments_; }
  // One at a time.
  [[nodiscard]] Result<void> start_capture(const CaptureOptions& options);
  // Its figures are those of its end.
  struct StoppedCapture {
    std::unique_ptr<Capture> capture;
    bool complete = false;  // else the last frames are still being written
  };
  [[nodiscard]] Result<StoppedCapture> stop_capture();

  [[nodiscard]] NetworkFigures figures();

  // --- What does not change, or belongs to the control thread: needs no call.

  [[nodiscard]] bool is_modelled() const { return fabric_ != nullptr; }
  // Links with names: of the modelled network, or of the star that an ideal one would become.
  [[nodiscard]] const fabric::Topology& topology_to_be();
  // What a process on that NIC needs to know of the modelled network.
  [[nodiscard]] srd::NetworkModel seen_from(const PlantNic& nic) const {
    return fabric_->seen_from(nic.port);
  }
  [[nodiscard]] const Plant& plant() const { return forwarder_.plant(); }
  // Whether some NIC has that address.
  [[nodiscard]] attach::Presence presence_of(const srd::Address& address) const;
  // In the order of NetworkFigures::ports.
  struct PortName {
    std::size_t number;
    std::string name;
    std::string host;
  };
  [[nodiscard]] const std::vector<PortName>& ports() const { return ports_; }
  [[nodiscard]] const Capture* capture() const { return capture_.get(); }

  // The last known state of a NIC's link; from notices.
  [[nodiscard]] bool link_up(const PlantNic& nic) const;
  void note_link(std::uint32_t nic, bool up);

 private:
  template <class F>
  auto call(F&& what) {
    return forwarder_.calls().run(std::forward<F>(what));
  }
  [[nodiscard]] fabric::Topology star() const;
  void model();

  Forwarder& forwarder_;
  EventLog& events_;
  Options options_;
  LiveFabric* fabric_ = nullptr;          // the forwarder's; only its constant parts are used here
  std::optional<fabric::Topology> star_;  // while the network is ideal and its links were asked for
  std::uint32_t faults_ = 0;
  std::uint64_t occurrences_ = 0;
  Impairments impairments_;
  std::unique_ptr<Capture> capture_;
  std::vector<PortName> ports_;
  std::vector<std::uint32_t> down_;  // NICs
  std::size_t processes_ = 0;
  std::function<void()> on_modelled_;
};

}  // namespace weft::daemon
