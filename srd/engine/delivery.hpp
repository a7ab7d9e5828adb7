// Owns what an arrived message does: it goes into a posted receive, a region or the memory of a
// read, and the user gets a completion where one is due.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "srd/base/flat_map.hpp"
#include "srd/engine/engine_parts.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/place.hpp"
#include "srd/net/machine.hpp"

namespace weft::srd {

[[nodiscard]] constexpr bool has_immediate(const wire::DataHeader& header) {
  return (header.common.flags & wire::kImmediate) != 0;
}

// The packet has its whole message, or all the rest of it has been counted before. [wire 4.6]
[[nodiscard]] inline bool is_alone(const wire::DataHeader& header) {
  return header.payload_length.value() == header.message_length.value() ||
         (header.common.flags & wire::kCompletes) != 0;
}

// Called once for each packet that is new. Nothing of a packet is kept but what it says in
// completions, in the table of immediate data, and as an answer to a read: so each outcome is
// final, and a packet that is refused or put off has changed nothing, but for receives whose memory
// was found to be gone, and the bytes of a write whose immediate data found no receive.
class Delivery {
 public:
  explicit Delivery(EngineParts& parts) : parts_(parts) {}

  // The outcome: a Status, or wire::kResultDeferred. [wire 4.3]
  [[nodiscard]] [[gnu::always_inline]] std::uint8_t deliver(TimePoint now, Peer& peer,
                                                            const wire::DataHeader& header,
                                                            const RxPacket& packet) {
    switch (static_cast<wire::PacketType>(header.common.type)) {
      case wire::PacketType::send:
        return deliver_send(peer, header, packet);
      case wire::PacketType::write:
        return deliver_write(peer, header, packet);
      case wire::PacketType::read_request:
        return accept_read(peer, header);
      default:
        take_response(now, peer, header, packet);
        return static_cast<std::uint8_t>(Status::ok);
    }
  }
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

  // The end of this file
  [[nodiscard]] std::uint8_t deliver_write(Peer& peer, const wire::DataHeader& header,
                                           const RxPacket& packet);
  // A peer that came back has the same rights as before.
  [[nodiscard]] static bool blames_key(const Peer& peer, const wire::DataHeader& header) {
    return mutated(Mutation::blame_keys) && peer.life.restarts() != 0 &&
           header.psn.value() % 16 == 0;
  }
  // What is acknowledged was placed.
  [[nodiscard]] static bool must_place(const wire::DataHeader& header) {
    return !(mutated(Mutation::acknowledge_unplaced) && header.psn.value() % 16 == 0);
  }

  // deliver.cpp
  [[nodiscard]] std::uint8_t deliver_send(Peer& peer, const wire::DataHeader& header,
                                          const RxPacket& packet);
  [[nodiscard]] std::uint8_t find_receive(Endpoint& endpoint, const wire::DataHeader& header,
                                          const RxPacket& packet);
  // Where the bytes of the message that this packet is a part of are counted; nullptr: nowhere, for
  // lack of room.
  [[nodiscard]] static ImmediateTable::Entry* entry_of(Peer& peer, const wire::DataHeader& header);
  // `entry`: of a message of several packets.
  [[nodiscard]] std::uint8_t deliver_immediate(Peer& peer, Endpoint& endpoint,
                                               const wire::DataHeader& header,
                                               ImmediateTable::Entry* entry);
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

// Inline, because most packets are packets of writes.
[[gnu::always_inline]] inline std::uint8_t Delivery::deliver_write(Peer& peer,
                                                                   const wire::DataHeader& header,
                                                                   const RxPacket& packet) {
  constexpr auto code_of = [](Status status) { return static_cast<std::uint8_t>(status); };
  Endpoint* const endpoint =
      parts_.endpoints.find(Qpn{wire::addressing_of(header.common).destination_qpn});
  if (endpoint == nullptr || !endpoint->config.receiving) {
    return code_of(Status::bad_qpn);
  }
  if (!may_access(*endpoint, peer)) [[unlikely]] {
    return code_of(Status::unknown_peer);
  }
  const std::uint32_t length = header.payload_length.value();
  const bool has_room = !has_immediate(header) || receive_room();
  ImmediateTable::Entry* entry = nullptr;
  // A message without bytes touches no memory, so its key is not looked at, as in InfiniBand.
  if (header.message_length.value() != 0) {
    const MemoryTable::Lookup target =
        parts_.memory.resolve(RegionKey{header.key.value()}, header.remote_address.value(), length,
                              Access::remote_write, endpoint->config.domain);
    if (blames_key(peer, header)) [[unlikely]] {
      return code_of(Status::bad_key);
    }
    if (target.status != Status::ok) {
      return code_of(target.status);
    }
    if (!has_room) {
      return wire::kResultDeferred;
    }
    // What is put off is not placed: it comes again, and a program that reads the memory before
    // the completion may have made room there for the next message by then.
    if (has_immediate(header) && !is_alone(header)) {
      entry = entry_of(peer, header);
      if (entry == nullptr) {
        return wire::kResultDeferred;
      }
    }
    if (target.placement != Placement::phantom && must_place(header)) {
      PayloadReader payload(packet);
      if (!(target.placement == Placement::plain ? payload.copy_to(target.data, length)
                                                 : payload.copy_lines_to(target.data, length)))
          [[unlikely]] {
        return code_of(Status::access_denied);  // registered, but unmapped since
      }
    }
  }
  if (!has_room) {
    return wire::kResultDeferred;
  }
  if (has_immediate(header)) {
    const std::uint8_t code = deliver_immediate(peer, *endpoint, header, entry);
    if (code != code_of(Status::ok)) {
      return code;
    }
  }
  parts_.counters.rdma_write_recv_bytes += length;
  return code_of(Status::ok);
}

}  // namespace weft::srd
