// Owns the transport engine: reliable, unordered, sprayed datagrams and remote memory access between NICs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "srd/base/result.hpp"
#include "srd/engine/config.hpp"
#include "srd/engine/machine.hpp"
#include "srd/engine/memory_table.hpp"
#include "srd/engine/requests.hpp"

namespace weft::srd {

class Engine final : public Machine {
 public:
  explicit Engine(const EngineConfig& config);

  // --- Machine
  void on_packet(TimePoint now, const RxPacket& packet) override;
  void on_timeout(TimePoint now) override;
  [[nodiscard]] bool next_transmit(TimePoint now, TxPacket& out) override;
  [[nodiscard]] TimePoint next_timeout() const override;

  // --- Peers. A reliability context is made on first use and shared by all endpoints.
  [[nodiscard]] Result<PeerId> peer(const Address& address, AttachmentId attachment);
  [[nodiscard]] Address address_of(PeerId peer) const;

  // --- Endpoints (queue pairs).
  [[nodiscard]] Result<void> open_endpoint(Qpn qpn, const EndpointConfig& config);
  // Its outstanding requests and posted receives complete as flushed.
  void close_endpoint(Qpn qpn);
  void set_receiving(Qpn qpn, bool receiving);

  // --- Work. False: a limit of the configuration is reached, nothing was taken; try again after poll().
  [[nodiscard]] bool post(const SendRequest& request);
  [[nodiscard]] bool post(const WriteRequest& request);
  [[nodiscard]] bool post(const ReadRequest& request);
  [[nodiscard]] bool post_receive(Qpn qpn, const ReceiveRequest& request);
  // Ends the outstanding requests of `source` towards `peer` (an address handle is destroyed).
  void flush(PeerId peer, Qpn source);

  // Takes up to completions.size() of what has ended.
  [[nodiscard]] std::size_t poll(std::span<Completion> completions);

  [[nodiscard]] MemoryTable& memory();
  [[nodiscard]] std::size_t max_send_size() const;
};

}  // namespace weft::srd
