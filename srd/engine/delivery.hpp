// Owns what an arrived message does: it goes into a posted receive, a region or the memory of a
// read, and the user gets a completion where one is due.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "srd/base/flat_map.hpp"
#include "srd/engine/engine_parts.hpp"
#include "srd/net/machine.hpp"

namespace weft::srd {

// Called once for each packet that is new. Nothing of a packet is kept but what it says in
// completions, in the table of immediate data, and as an answer to a read: so each outcome is
// final, and a packet that is refused or put off has changed nothing, but for receives whose memory
// was found to be gone.
class Delivery {
 public:
  explicit Delivery(EngineParts& parts) : parts_(parts) {}

  // The outcome: a Status, or wire::kResultDeferred. [wire 4.3]
  [[nodiscard]] std::uint8_t deliver(TimePoint now, Peer& peer, const wire::DataHeader& header,
                                     const RxPacket& packet);
  // A copy of a packet that was delivered before: nothing happens, but for deliberate bugs.
  void deliver_copy(TimePoint now, Peer& peer, const wire::DataHeader& header,
                    const RxPacket& packet);
  // Completes a receive whose memory must not be touched, and which the caller has taken out of the
  // endpoint's.
  void fail_receive(const Endpoint& endpoint, const ReceiveRequest& receive);
  // From now on, endpoints of this domain with `acquainted_only` let this address read and write
  // (`known`), or refuse it.
  void acquaint(std::uint32_t domain, const Address& address, bool known);

 private:
  struct Acquaintance {
    Address address;
    std::uint32_t domain = 0;
    friend bool operator==(const Acquaintance&, const Acquaintance&) = default;
  };
  struct AcquaintanceHash {
    std::size_t operator()(const Acquaintance& who) const noexcept {
      return std::hash<Address>{}(who.address) + who.domain * 0x9E3779B97F4A7C15ULL;
    }
  };

  // deliver.cpp
  [[nodiscard]] std::uint8_t deliver_send(Peer& peer, const wire::DataHeader& header,
                                          const RxPacket& packet);
  [[nodiscard]] std::uint8_t find_receive(Endpoint& endpoint, const wire::DataHeader& header,
                                          const RxPacket& packet);
  [[nodiscard]] std::uint8_t deliver_write(Peer& peer, const wire::DataHeader& header,
                                           const RxPacket& packet);
  [[nodiscard]] std::uint8_t deliver_immediate(Peer& peer, Endpoint& endpoint,
                                               const wire::DataHeader& header);
  void count_order(Peer& peer, std::uint32_t message);
  [[nodiscard]] bool receive_room() const {
    return parts_.completions.has_room_for_receive(parts_.works.outstanding());
  }
  [[nodiscard]] bool may_access(const Endpoint& endpoint, const Peer& peer) const {
    return !endpoint.config.acquainted_only || is_acquainted(endpoint, peer);
  }
  [[nodiscard]] bool is_acquainted(const Endpoint& endpoint, const Peer& peer) const;

  // reads.cpp
  [[nodiscard]] std::uint8_t accept_read(Peer& peer, const wire::DataHeader& header);
  void take_response(TimePoint now, Peer& peer, const wire::DataHeader& header,
                     const RxPacket& packet);

  EngineParts& parts_;
  FlatMap<Acquaintance, AcquaintanceHash> acquaintances_;
};

}  // namespace weft::srd
