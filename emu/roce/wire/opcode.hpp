// Owns the opcodes of RoCEv2: which transport and operation each is, and which headers follow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::roce::wire {

// The low five bits of an opcode, the same for all transports.
enum class Operation : std::uint8_t {
  send_first = 0,
  send_middle = 1,
  send_last = 2,
  send_last_immediate = 3,
  send_only = 4,
  send_only_immediate = 5,
  write_first = 6,
  write_middle = 7,
  write_last = 8,
  write_last_immediate = 9,
  write_only = 10,
  write_only_immediate = 11,
  read_request = 12,
  read_response_first = 13,
  read_response_middle = 14,
  read_response_last = 15,
  read_response_only = 16,
  acknowledge = 17,
  atomic_acknowledge = 18,
  compare_swap = 19,
  fetch_add = 20,
  send_last_invalidate = 22,
  send_only_invalidate = 23,
  atomic_write = 29,
};

// The upper three bits.
enum class Transport : std::uint8_t { rc = 0x00, uc = 0x20, rd = 0x40, ud = 0x60, other = 0x80 };

inline constexpr std::uint8_t kCongestionNotification = 0x81;
inline constexpr std::uint8_t kNotificationDscp = 48;  // the class of service that it travels in

[[nodiscard]] constexpr std::uint8_t opcode_of(Transport transport, Operation operation) {
  return static_cast<std::uint8_t>(static_cast<unsigned>(transport) |
                                   static_cast<unsigned>(operation));
}
[[nodiscard]] constexpr Transport transport_of(std::uint8_t opcode) {
  const unsigned bits = opcode & 0xE0U;
  return bits >= static_cast<unsigned>(Transport::other) ? Transport::other
                                                         : static_cast<Transport>(bits);
}
[[nodiscard]] constexpr Operation operation_of(std::uint8_t opcode) {
  return static_cast<Operation>(opcode & 0x1F);
}

// What an opcode means. Headers follow BTH in the order of these bits. One table answers every
// question about an opcode, so that no two places can disagree about it.
enum Trait : std::uint16_t {
  kHasDeth = 1U << 0,
  kHasReth = 1U << 1,
  kHasAtomicEth = 1U << 2,
  kHasAeth = 1U << 3,
  kHasAtomicAck = 1U << 4,
  kHasImmediate = 1U << 5,
  kHasIeth = 1U << 6,
  kHasCnpBody = 1U << 7,
  kKnown = 1U << 8,
  kResponse = 1U << 9,
  kPayload = 1U << 10,
  kBegins = 1U << 11,  // the packet is the first, or the only one, of its message
  kEnds = 1U << 12,    // the last or the only one
  kSend = 1U << 13,
  kWrite = 1U << 14,
  kAtomic = 1U << 15,
};

namespace detail {
constexpr std::array<std::uint16_t, 256> make_traits() {
  std::array<std::uint16_t, 256> table{};
  const auto set = [&](Transport transport, Operation operation, unsigned traits) {
    table[opcode_of(transport, operation)] = static_cast<std::uint16_t>(kKnown | traits);
  };
  for (const Transport transport : {Transport::rc, Transport::uc}) {
    set(transport, Operation::send_first, kSend | kPayload | kBegins);
    set(transport, Operation::send_middle, kSend | kPayload);
    set(transport, Operation::send_last, kSend | kPayload | kEnds);
    set(transport, Operation::send_last_immediate, kSend | kPayload | kEnds | kHasImmediate);
    set(transport, Operation::send_only, kSend | kPayload | kBegins | kEnds);
    set(transport, Operation::send_only_immediate,
        kSend | kPayload | kBegins | kEnds | kHasImmediate);
    set(transport, Operation::write_first, kWrite | kPayload | kBegins | kHasReth);
    set(transport, Operation::write_middle, kWrite | kPayload);
    set(transport, Operation::write_last, kWrite | kPayload | kEnds);
    set(transport, Operation::write_last_immediate, kWrite | kPayload | kEnds | kHasImmediate);
    set(transport, Operation::write_only, kWrite | kPayload | kBegins | kEnds | kHasReth);
    set(transport, Operation::write_only_immediate,
        kWrite | kPayload | kBegins | kEnds | kHasReth | kHasImmediate);
  }
  const Transport rc = Transport::rc;
  set(rc, Operation::read_request, kBegins | kEnds | kHasReth);
  set(rc, Operation::read_response_first, kResponse | kPayload | kBegins | kHasAeth);
  set(rc, Operation::read_response_middle, kResponse | kPayload);
  set(rc, Operation::read_response_last, kResponse | kPayload | kEnds | kHasAeth);
  set(rc, Operation::read_response_only, kResponse | kPayload | kBegins | kEnds | kHasAeth);
  set(rc, Operation::acknowledge, kResponse | kHasAeth);
  set(rc, Operation::atomic_acknowledge, kResponse | kHasAeth | kHasAtomicAck);
  set(rc, Operation::compare_swap, kAtomic | kBegins | kEnds | kHasAtomicEth);
  set(rc, Operation::fetch_add, kAtomic | kBegins | kEnds | kHasAtomicEth);
  set(rc, Operation::atomic_write, kAtomic | kPayload | kBegins | kEnds | kHasReth);
  set(rc, Operation::send_last_invalidate, kSend | kPayload | kEnds | kHasIeth);
  set(rc, Operation::send_only_invalidate, kSend | kPayload | kBegins | kEnds | kHasIeth);
  set(Transport::ud, Operation::send_only, kSend | kPayload | kBegins | kEnds | kHasDeth);
  set(Transport::ud, Operation::send_only_immediate,
      kSend | kPayload | kBegins | kEnds | kHasDeth | kHasImmediate);
  table[kCongestionNotification] = kKnown | kHasCnpBody;
  return table;
}
inline constexpr std::array<std::uint16_t, 256> kTraits = make_traits();
}  // namespace detail

// 0 for an opcode that is not spoken here: RD, XRC, flush, vendors' own.
[[nodiscard]] constexpr std::uint16_t traits_of(std::uint8_t opcode) {
  return detail::kTraits[opcode];
}

}  // namespace weft::roce::wire
