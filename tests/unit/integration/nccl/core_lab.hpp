// Owns the laboratory of the NCCL plugin: NICs in virtual time, and the calls that NCCL makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "emu/world/world.hpp"
#include "integration/nccl/core/core.hpp"

namespace weft::testing {

using namespace std::chrono_literals;

struct NcclLabConfig {
  srd::EngineConfig engine;
  world::LinkModel link;
  std::uint64_t seed = 1;
};
[[nodiscard]] NcclLabConfig nccl_lab_config();

// Bytes that depend on `seed` and on their place.
void fill_bytes(std::span<std::byte> bytes, std::uint64_t seed);
[[nodiscard]] bool has_bytes(std::span<const std::byte> bytes, std::uint64_t seed);

// A core of the plugin on each NIC. Calls are made from one thread, between steps of the world: the
// plugin's locks and threads are not in here.
class NcclLab {
 public:
  explicit NcclLab(std::uint32_t nics, const NcclLabConfig& config = nccl_lab_config());

  [[nodiscard]] nccl::Core& core(std::uint32_t nic) { return *cores_[nic]; }
  [[nodiscard]] srd::Engine& engine(std::uint32_t nic) { return world_.engine(nic); }
  [[nodiscard]] world::VirtualWorld& world() { return world_; }

  struct Connection {
    nccl::SendComm* sender = nullptr;
    nccl::ReceiveComm* receiver = nullptr;
  };
  // From one NIC to another, as NCCL does it.
  [[nodiscard]] Connection connect(std::uint32_t from, std::uint32_t to);

  bool run_until(const std::function<bool()>& reached, Duration limit = 30s);
  void run_for(Duration duration);
  void crash(std::uint32_t nic);
  void restart(std::uint32_t nic);

 private:
  void boot(std::uint32_t nic);
  bool step(TimePoint limit);

  NcclLabConfig config_;
  world::VirtualWorld world_;
  std::vector<srd::EngineConfig> engines_;
  std::vector<std::unique_ptr<nccl::Core>> cores_;
};

// test(): nothing while it is under way. A request is dead afterwards.
[[nodiscard]] std::optional<nccl::Outcome> ended(nccl::Request* request);

}  // namespace weft::testing
