// Owns weftd: what it is made of, and who of that runs where.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emu/daemon/control.hpp"
#include "emu/daemon/plant.hpp"
#include "emu/fabric/topology.hpp"
#include "srd/base/result.hpp"

namespace weft::daemon {

struct DaemonOptions {
  std::string directory;           // holds attach.sock, control.sock and metrics.sock
  std::string event_log;           // a file; empty: none
  std::uint16_t metrics_port = 0;  // of the loopback address, for whoever may connect; 0: none
  Plant::Options plant;
  std::size_t mtu = 4096 + 64;  // of transport packets: payload and header
  // More than a core's second-level cache holds: otherwise the writer waits for each line to come
  // back from the reader's core, and bandwidth is a third.
  std::size_t ring_bytes = std::size_t{1} << 21;
  bool direct_rings = true;
  std::optional<fabric::Topology>
      topology;  // must be valid; its hosts count, with addresses as `plant` says
  std::uint64_t seed = 1;
  double dilation = 1;               // seconds here per second in the network
  std::vector<std::string> ports{};  // to the outside, as parse_outside() takes them
  std::string join_key{};            // file of the key that udp ports need
};

// Two planes. Forwarding is one thread: the Forwarder, with the slots of processes, the modelled
// network and the ports to the outside. Control is another one: an event loop with the AttachServer
// and the servers of the control socket and of metrics. It reaches forwarding through the
// NetworkControl, and forwarding leaves Notices for it.
class Daemon {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Daemon>> create(const DaemonOptions& options);
  ~Daemon();

  // Until stop() or SIGINT/SIGTERM, which it takes over. Forwards on the calling thread.
  [[nodiscard]] Result<void> run();

  // What connections can ask; by the control thread, or as long as nobody is in run().
  [[nodiscard]] const ControlView& control() const;

 private:
  struct Planes;

  explicit Daemon(std::unique_ptr<Planes> planes);

  std::unique_ptr<Planes> planes_;
};

}  // namespace weft::daemon
