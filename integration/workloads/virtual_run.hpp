// Owns a run of ranks in virtual time: real engines on an emulated network, and no clock but the
// simulator's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emu/sim/scenario.hpp"
#include "emu/sim/simulation.hpp"
#include "integration/workloads/worker.hpp"

namespace weft::workloads {

struct VirtualGround {
  std::uint32_t ranks = 8;
  std::string topology{};             // the text of a file; empty: leaf-spine, four hosts to a leaf
  std::string topology_file{};        // what errors call that file
  std::string rate = "400Gbps";       // of the links of that leaf-spine network
  std::vector<std::string> faults{};  // as `weft fault` takes them
  std::uint64_t seed = 1;
  std::string time_limit = "10s";
  std::uint32_t paths = 64;
  std::uint32_t mtu = 4150;            // wire bytes of a full packet
  std::string peer_timeout = "500ms";  // no answer for so long: a rank is dead
  std::string path_selector{};         // empty: the transport's choice
};

// Bytes of the ranks' writes travel, and the fault model is that of `weft sim`.
class VirtualRun {
 public:
  // Ranks are spread over the leaves: rank 0 and 1 have no switch in common. Errors name the file,
  // or the option of `weft ep-perf` and `weft step-perf` that is wrong.
  [[nodiscard]] static Result<std::unique_ptr<VirtualRun>> create(const VirtualGround& ground);
  ~VirtualRun();

  // In the order of ranks. `place` says where the rank is; its own memory is the worker's matter,
  // which puts it into `place`.
  using Make =
      std::function<std::unique_ptr<Worker>(srd::Engine&, std::uint32_t rank, RankPlace& place)>;
  // Until all have finished or time is up. The error says which rank was left, and why.
  [[nodiscard]] Result<void> run(const Make& make, bool real_payload);

  [[nodiscard]] Worker& worker(std::uint32_t rank);
  // Of all ranks' engines.
  [[nodiscard]] PacketCounters counters() const;
  [[nodiscard]] double simulated_us() const;
  [[nodiscard]] std::uint64_t digest() const;

 private:
  VirtualRun() = default;
  class RankTransport;

  std::uint32_t ranks_ = 0;
  sim::Scenario scenario_;
  std::vector<fabric::PortId> ports_;  // by rank
  std::vector<RankTransport*> transports_;
  std::unique_ptr<sim::Simulation> simulation_;
};

}  // namespace weft::workloads
