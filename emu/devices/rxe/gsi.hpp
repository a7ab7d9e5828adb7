// Owns queue pair 1, the general service interface: its datagrams, which carry the messages of
// connection management and of the other classes of management.
//
// The messages are not understood here: agents (kernel/management.hpp) read and write them. Without
// one they are dropped, as by a host on which no program uses rdma_cm or umad.
#pragma once

#include <algorithm>

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
  void on_timeout(TimePoint now);
  [[nodiscard]] bool next_transmit(TimePoint now, srd::TxPacket& out);
  [[nodiscard]] TimePoint next_timeout() const {
    return std::min(next_timeout_of(agent_), next_timeout_of(other_agent_));
  }

  // --- ManagementPort
  [[nodiscard]] Facts facts() const override;
  void set_agent(kernel::ManagementAgent* agent) override { agent_ = agent; }
  void set_other_agent(kernel::ManagementAgent* agent) override { other_agent_ = agent; }

 private:
  [[nodiscard]] static TimePoint next_timeout_of(const kernel::ManagementAgent* agent) {
    return agent == nullptr ? kNever : agent->next_timeout();
  }
  void write(const kernel::ManagementMessage& message, srd::TxPacket& out);

  const roce::EngineConfig& config_;
  kernel::ManagementAgent* agent_ = nullptr;
  kernel::ManagementAgent* other_agent_ = nullptr;
  std::uint32_t next_psn_ = 0;
};

}  // namespace weft::devices::rxe
