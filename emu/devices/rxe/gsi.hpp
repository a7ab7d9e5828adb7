// Owns queue pair 1, the general service interface: its datagrams, which carry the messages of
// connection management.
//
// The messages are not understood here: the agent (kernel/management.hpp) reads and writes them.
// Without an agent they are dropped, as by a host on which no program uses rdma_cm.
#pragma once

#include <span>

#include "emu/kernel/management.hpp"
#include "emu/roce/engine/engine.hpp"
#include "srd/net/machine.hpp"

namespace weft::devices::rxe {

class Gsi final : public kernel::ManagementPort {
 public:
  // The configuration must outlive it.
  explicit Gsi(const roce::EngineConfig& config) : config_(config) {}

  // A datagram without ICRC. True: it was for queue pair 1, and has been looked at.
  bool take(TimePoint now, const srd::RxPacket& packet, const roce::wire::DatagramHeader& outer);
  void on_timeout(TimePoint now) {
    if (agent_ != nullptr && agent_->next_timeout() <= now) {
      agent_->on_timeout(now);
    }
  }
  [[nodiscard]] bool next_transmit(TimePoint now, srd::TxPacket& out) {
    return agent_ != nullptr && agent_->next_timeout() <= now && write_next(out);
  }
  [[nodiscard]] TimePoint next_timeout() const {
    return agent_ == nullptr ? kNever : agent_->next_timeout();
  }

  // --- ManagementPort
  [[nodiscard]] Facts facts() const override;
  void set_agent(kernel::ManagementAgent* agent) override { agent_ = agent; }

 private:
  [[nodiscard]] bool write_next(srd::TxPacket& out);

  const roce::EngineConfig& config_;
  kernel::ManagementAgent* agent_ = nullptr;
  std::uint32_t next_psn_ = 0;
};

}  // namespace weft::devices::rxe
