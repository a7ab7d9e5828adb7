// Owns the delivery of sends and of immediate data: which receive they take, and which completion
// tells so. What a write does to a region is in delivery.hpp.
#include "srd/engine/delivery.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/place.hpp"

namespace weft::srd {
namespace {

using wire::PacketType;

constexpr std::uint8_t code_of(Status status) { return static_cast<std::uint8_t>(status); }
constexpr std::uint8_t kAccepted = code_of(Status::ok);

// --- The rules, one by one. Each has a mutation that breaks it.

bool accepts_key(const Endpoint& endpoint, const wire::DataHeader& header) {
  return endpoint.config.qkey == header.key.value() || mutated(Mutation::skip_qkey);
}

bool has_receive(const Endpoint& endpoint, const wire::DataHeader& header,
                 const CompletionBacklog& completions) {
  const bool doubted = (mutated(Mutation::doubt_receives) && header.psn.value() % 64 == 0) ||
                       (mutated(Mutation::refuse_while_unpolled) && completions.next() != nullptr);
  return !endpoint.receives.empty() && !doubted;
}

void take_receive(Endpoint& endpoint) {
  if (!mutated(Mutation::reuse_buffers)) {
    endpoint.receives.pop();
  }
}

// What a deliberate bug does: a message that is refused takes the receive all the same.
void flush_receive(Endpoint& endpoint, CompletionBacklog& completions) {
  Completion& taken = completions.push_receive();
  taken.cookie = endpoint.receives.front().cookie;
  taken.status = Status::flushed;
  taken.endpoint = endpoint.qpn;
  endpoint.receives.pop();
}

// Bytes of the receive behind a message stay as they are.
bool spills(const ReceiveRequest& receive, std::uint32_t length) {
  return mutated(Mutation::spill_message) && length < receive.segments[0].length;
}

bool tells_immediate(const wire::DataHeader& header) {
  return has_immediate(header) && !mutated(Mutation::lose_immediate);
}

Qpn sender_of(const Endpoint& endpoint, const wire::DataHeader& header) {
  return mutated(Mutation::wrong_sender) ? endpoint.qpn : Qpn{header.common.source_qpn.value()};
}

// Immediate data is told when the whole message is there.
bool waits_for_rest() { return !mutated(Mutation::announce_early); }

// The copies that deliberate bugs deliver once more, though the window knows them.
bool delivers_copy(const Peer& peer) {
  return mutated(Mutation::deliver_copies) ||
         (mutated(Mutation::count_copies) && peer.receiver.known_immediates() != nullptr);
}
bool places_copy(const wire::DataHeader& header) {
  return mutated(Mutation::place_copies) &&
         header.common.type == static_cast<std::uint8_t>(PacketType::write) &&
         !has_immediate(header);
}

}  // namespace

void Delivery::deliver_copy(TimePoint now, Peer& peer, const wire::DataHeader& header,
                            const RxPacket& packet) {
  if (delivers_copy(peer)) [[unlikely]] {
    (void)deliver(now, peer, header, packet);
  }
  if (places_copy(header)) [[unlikely]] {
    (void)deliver_write(peer, header, packet);
  }
}

void Delivery::fail_receive(const Endpoint& endpoint, const ReceiveRequest& receive) {
  Completion& completion = parts_.completions.push_receive();
  completion.cookie = receive.cookie;
  completion.status = Status::local_protection;
  completion.endpoint = endpoint.qpn;
}

[[gnu::hot]] std::uint8_t Delivery::deliver_send(Peer& peer, const wire::DataHeader& header,
                                                 const RxPacket& packet) {
  Endpoint* const endpoint =
      parts_.endpoints.find(Qpn{wire::addressing_of(header.common).destination_qpn});
  if (endpoint == nullptr || !endpoint->config.receiving) {
    return code_of(Status::bad_qpn);
  }
  if (!accepts_key(*endpoint, header)) {
    return code_of(Status::bad_qkey);
  }
  if (const std::uint8_t code = find_receive(*endpoint, header, packet); code != kAccepted) {
    return code;
  }
  const ReceiveRequest& receive = endpoint->receives.front();
  const std::uint32_t length = header.payload_length.value();
  if (spills(receive, length)) [[unlikely]] {
    receive.segments[0].data[length] = std::byte{0};
  }
  Completion& completion = parts_.completions.push_receive();
  completion.cookie = receive.cookie;
  completion.has_immediate = tells_immediate(header);
  completion.immediate = header.immediate.value();
  completion.endpoint = endpoint->qpn;
  completion.remote = sender_of(*endpoint, header);
  completion.peer = peer.id;
  completion.length = length;
  take_receive(*endpoint);
  count_order(peer, header.message.value());
  ++parts_.counters.recv_wrs;
  parts_.counters.recv_bytes += length;
  return kAccepted;
}

// Places the message in the first receive that still has its memory.
[[gnu::always_inline]] inline std::uint8_t Delivery::find_receive(Endpoint& endpoint,
                                                                  const wire::DataHeader& header,
                                                                  const RxPacket& packet) {
  const std::uint32_t length = header.payload_length.value();
  for (;;) {
    if (!has_receive(endpoint, header, parts_.completions)) {
      ++parts_.counters.rnr_sent;
      return code_of(Status::receiver_not_ready);
    }
    const ReceiveRequest& first = endpoint.receives.front();
    if (total_length(first.segments) < length) {
      if (mutated(Mutation::refusal_takes_receive)) [[unlikely]] {
        flush_receive(endpoint, parts_.completions);
      }
      return code_of(Status::length_error);
    }
    if (!receive_room()) {
      return wire::kResultDeferred;
    }
    if (place(packet, length, first.segments, 0)) [[likely]] {
      return kAccepted;
    }
    // The memory of this receive is gone. As if the user had taken it back (Engine::revoke()), the
    // receive fails and the message goes to the next one.
    const ReceiveRequest gone = first;
    endpoint.receives.pop();
    fail_receive(endpoint, gone);
  }
}

ImmediateTable::Entry* Delivery::entry_of(Peer& peer, const wire::DataHeader& header) {
  return peer.receiver.immediates().find(header.message.value(), header.message_length.value(),
                                         Psn{header.psn.value()},
                                         peer.receiver.window().cumulative());
}

// Counts the bytes of a write with immediate data, and completes a receive when all are there. A
// packet that completes the message and finds no receive is refused, with everything before it
// placed. When it comes again, kCompletes in its header says that all the rest had arrived, so no
// entry of the table is kept until then. [wire 4.6]
std::uint8_t Delivery::deliver_immediate(Peer& peer, Endpoint& endpoint,
                                         const wire::DataHeader& header,
                                         ImmediateTable::Entry* entry) {
  const std::uint32_t length = header.payload_length.value();
  if (entry != nullptr && entry->missing > length && waits_for_rest()) {
    entry->missing -= length;
    return kAccepted;
  }
  const bool consumes = !endpoint.config.unsolicited_immediate;
  if (consumes && endpoint.receives.empty()) {
    ++parts_.counters.rnr_sent;
    if (entry != nullptr) {
      // A refusal that cannot be noted is not told: the packet comes again without kCompletes, so
      // the entry must go on counting.
      if (!peer.receiver.window().may_note(Psn{header.psn.value()})) {
        return wire::kResultDeferred;
      }
      entry->used = mutated(Mutation::immediate_table_unfair);
    }
    return code_of(Status::receiver_not_ready);
  }
  Completion& completion = parts_.completions.push_receive();
  completion.kind = Completion::Kind::receive_write_imm;
  completion.has_immediate = true;
  completion.immediate = header.immediate.value();
  completion.consumed_receive = consumes;
  completion.endpoint = endpoint.qpn;
  completion.remote = Qpn{header.common.source_qpn.value()};
  completion.peer = peer.id;
  completion.length = header.message_length.value();
  if (consumes) {
    completion.cookie = endpoint.receives.front().cookie;
    endpoint.receives.pop();
    ++parts_.counters.recv_wrs;
  }
  if (entry != nullptr) {
    entry->used = false;
  }
  count_order(peer, header.message.value());
  return kAccepted;
}

void Delivery::count_order(Peer& peer, std::uint32_t message) {
  ++parts_.counters.delivered_msgs;
  parts_.counters.reordered_msgs += peer.receiver.order().note_message(message) ? 1U : 0U;
}

void Delivery::acquaint(std::uint32_t domain, const Address& address, bool known) {
  const Acquaintance who{address, domain};
  const bool was_known = acquaintances_.find(who) != decltype(acquaintances_)::kAbsent;
  if (known && !was_known) {
    acquaintances_.insert(who, 0);
  } else if (!known && was_known) {
    acquaintances_.erase(who);
  }
}

bool Delivery::is_acquainted(const Endpoint& endpoint, const Peer& peer) const {
  return acquaintances_.find({peer.key.address, endpoint.config.domain}) !=
         decltype(acquaintances_)::kAbsent;
}

}  // namespace weft::srd
