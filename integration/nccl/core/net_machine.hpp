// Owns the Machine of a NIC of the plugin: the engine, and the connections that use it.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "integration/nccl/core/core.hpp"
#include "srd/engine/engine.hpp"
#include "srd/net/machine.hpp"

namespace weft::nccl {

// Whatever arrives is followed up in the same round: an announcement that a send has waited for is
// answered by the write, whichever thread makes the round.
class NetMachine final : public srd::Machine {
 public:
  [[nodiscard]] static Result<std::unique_ptr<NetMachine>> create(
      const srd::EngineConfig& engine_config, const CoreConfig& config) {
    auto machine = std::unique_ptr<NetMachine>(new NetMachine(engine_config));
    auto core = Core::create(machine->engine_, config);
    if (!core) {
      return tl::unexpected(core.error());
    }
    machine->core_ = std::move(*core);
    return machine;
  }

  void on_packet(TimePoint now, const srd::RxPacket& packet) override {
    engine_.on_packet(now, packet);
    core_->progress(now);
  }
  void on_packets(TimePoint now, std::span<const srd::RxPacket> packets) {
    for (const srd::RxPacket& packet : packets) {
      engine_.on_packet(now, packet);
    }
    core_->progress(now);
  }
  void on_timeout(TimePoint now) override {
    engine_.on_timeout(now);
    core_->progress(now);
  }
  [[nodiscard]] bool next_transmit(TimePoint now, srd::TxPacket& out) override {
    return engine_.next_transmit(now, out);
  }
  [[nodiscard]] TimePoint next_timeout() const override {
    return std::min(engine_.next_timeout(), core_->next_timeout());
  }

  [[nodiscard]] Core& core() { return *core_; }
  [[nodiscard]] const srd::Engine& engine() const { return engine_; }

 private:
  explicit NetMachine(const srd::EngineConfig& config) : engine_(config) {}

  srd::Engine engine_;
  std::unique_ptr<Core> core_;  // closes its endpoints before the engine goes
};

}  // namespace weft::nccl
