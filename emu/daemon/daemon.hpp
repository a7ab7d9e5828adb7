// Owns weftd: its parts, and on which thread each of them runs.
#pragma once

#include <sys/types.h>

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
  std::uint16_t metrics_port = 0;  // of the loopback address, for any user; 0: none
  Plant::Options plant;
  bool own_block = false;       // addresses that no other network here has, instead of plant.prefix
  std::size_t mtu = 4096 + 64;  // of transport packets: payload and header
  // More than a core's second-level cache holds: otherwise the lines that the writer needs next are
  // still in the reader's cache, it waits for each, and bandwidth falls to a third.
  std::size_t ring_bytes = std::size_t{1} << 21;
  bool direct_rings = true;
  // Must be valid. Its hosts take the place of those in `plant`, which still gives the addresses.
  std::optional<fabric::Topology> topology;
  std::uint64_t seed = 1;
  double dilation = 1;               // seconds here per second in the network
  std::vector<std::string> ports{};  // to the outside, as parse_outside() takes them
  std::string join_key{};            // file of the key that udp ports need
  bool share = false;                // containers may mount the folder "share"
  std::vector<uid_t> other_users{};  // who may attach, beside this user and root
};

// Two planes, one thread each:
//
//   control                                        forwarding
//   event loop: AttachServer, StreamServers        Forwarder: rounds over slots, the modelled
//   for control and metrics                        network, ports to the outside
//       |  NetworkControl --RoundCalls--> executed between two rounds  |
//       |  heed_notices() <--Notices----- pushed in a round            |
//
// Control waits for forwarding, never the other way round. SideThreads, a third kind, do what a
// client could make block for ever. create() opens everything and listens: when it returns, clients
// can connect. run() may be called once.
class Daemon {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Daemon>> create(const DaemonOptions& options);
  ~Daemon();

  // Runs until the command `stop`, SIGINT or SIGTERM, which it takes over. The calling thread
  // becomes the forwarding thread.
  [[nodiscard]] Result<void> run();

  // What connections can ask. For the control thread; for others only while run() does not run.
  [[nodiscard]] const ControlView& control() const;

 private:
  struct Planes;

  explicit Daemon(std::unique_ptr<Planes> planes);

  std::unique_ptr<Planes> planes_;
};

}  // namespace weft::daemon
