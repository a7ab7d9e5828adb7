// Owns the Machine of a NIC of the plugin: the engine, and the connections that use it.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "integration/nccl/core/core.hpp"
#include "integration/nccl/core/rma.hpp"
#include "srd/engine/engine.hpp"
#include "srd/net/machine.hpp"

namespace weft::nccl {

// Whatever arrives is followed up in the same round: an announcement that a send has waited for is
// answered by the write, whichever thread makes the round.
//
// The engine has one queue of completions for both users. Without an Rma the Core takes all of
// them; with one, they are told apart by their endpoint.
class NetMachine final : public srd::Machine {
 public:
  [[nodiscard]] static Result<std::unique_ptr<NetMachine>> create(
      const srd::EngineConfig& engine_config, const CoreConfig& config) {
    auto machine = std::unique_ptr<NetMachine>(new NetMachine(engine_config, config));
    auto core = Core::create(machine->engine_, config);
    if (!core) {
      return tl::unexpected(core.error());
    }
    machine->core_ = std::move(*core);
    return machine;
  }

  void on_packet(TimePoint now, const srd::RxPacket& packet) override {
    engine_.on_packet(now, packet);
    follow_up(now);
  }
  void on_packets(TimePoint now, std::span<const srd::RxPacket> packets) {
    for (const srd::RxPacket& packet : packets) {
      engine_.on_packet(now, packet);
    }
    follow_up(now);
  }
  void on_timeout(TimePoint now) override {
    engine_.on_timeout(now);
    follow_up(now);
  }
  [[nodiscard]] bool next_transmit(TimePoint now, srd::TxPacket& out) override {
    return engine_.next_transmit(now, out);
  }
  [[nodiscard]] TimePoint next_timeout() const override {
    const TimePoint own = std::min(engine_.next_timeout(), core_->next_timeout());
    return rma_ == nullptr ? own : std::min(own, rma_->next_timeout());
  }

  [[nodiscard]] Core& core() { return *core_; }
  // Its endpoints follow those of the connections. They are opened when somebody asks for them.
  [[nodiscard]] Result<Rma*> rma() {
    if (rma_ == nullptr) {
      RmaConfig config{.nic = config_};
      config.nic.first_qpn = srd::Qpn{config_.first_qpn.value() + kEndpoints};
      config.nic.seed = mix64(config_.seed);
      auto made = Rma::create(engine_, config);
      if (!made) {
        return tl::unexpected(made.error());
      }
      rma_ = std::move(*made);
    }
    return rma_.get();
  }
  // Null where nobody has asked for it.
  [[nodiscard]] const Rma* opened_rma() const { return rma_.get(); }
  // Nothing of ours is on its way.
  [[nodiscard]] bool idle() const { return core_->idle() && (rma_ == nullptr || rma_->idle()); }
  // True where nobody is left to watch: no connection is open, and no group.
  [[nodiscard]] bool stop_watching() {
    if (core_->has_connections() || (rma_ != nullptr && rma_->has_groups())) {
      return false;
    }
    core_->stop_watching();
    return true;
  }
  void take_leave(TimePoint now, srd::Leave how) { engine_.take_leave(now, how); }
  [[nodiscard]] bool is_awaited() const { return engine_.is_awaited(); }
  void stop_waiting() { engine_.stop_waiting(); }
  [[nodiscard]] const srd::Engine& engine() const { return engine_; }

 private:
  NetMachine(const srd::EngineConfig& engine, const CoreConfig& config)
      : config_(config), engine_(engine) {}

  void follow_up(TimePoint now) {
    if (rma_ == nullptr) {
      core_->progress(now);
      return;
    }
    while (const srd::Completion* const next = engine_.next_completion()) {
      const srd::Completion completion = *next;  // a copy: what is done with it may move the queue
      engine_.pop_completion();
      rma_->owns(completion.endpoint) ? rma_->take(completion) : core_->take(completion);
    }
    core_->follow_up(now);
    rma_->progress(now);
  }

  CoreConfig config_;
  srd::Engine engine_;
  std::unique_ptr<Core> core_;  // closes its endpoints before the engine goes
  std::unique_ptr<Rma> rma_;    // the same
};

}  // namespace weft::nccl
