// Owns the messages between weftd and the processes attached to it: one SEQPACKET datagram each,
// same machine, so in its byte order.
//
//   client                                     weftd
//   describe             ->
//                        <-                    host
//   attach               ->
//                        <-                    attached (+ ring memory, bell), or refused
//   service              ->
//                        <-                    served
//   group, locate        ->
//                        <-                    grouped, located
//                        <-                    direct (+ ring memory, bell), undirect, link
//   the connection ends: the place is given up
//
// Both programs come from one build as a rule: a message of another version is refused, never
// converted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "srd/wire/srd_codec.hpp"

namespace weft::attach {

inline constexpr std::uint32_t kAttachMagic = 0x57454654;
// Also of the layout of rings (srd/io/spsc_ring.hpp).
inline constexpr std::uint16_t kAttachVersion = 8;
inline constexpr std::size_t kMaxHostName = 32;
inline constexpr std::size_t kMaxNicsPerHost = 16;
inline constexpr std::size_t kMaxPorts = 64;  // of a weftd to the outside, taps among them
// Payload bytes of a packet on a weftd's network: the longest acknowledgement fits, too.
inline constexpr std::size_t kLeastPayload = 512;
inline constexpr std::size_t kMaxPayload = 9000;

enum class AttachMessage : std::uint16_t {
  attach = 1,    // client: give me a place on a NIC
  describe = 2,  // client: which NICs does this host have?
  attached = 3,  // weftd, with two descriptors: ring memory, the client's end of their bell
  host = 4,      // weftd
  refused = 5,   // weftd: the text says why
  direct = 6,    // weftd, with two descriptors: ring memory, this end of the bell
  undirect = 7,  // weftd: that peer's direct ring is no more
  tap = 8,       // a client, with a tap's descriptor: connect it to that host. Answered by `host`
  link = 9,      // weftd: the NIC's link went down, or came up
  service = 10,  // an attached process: requests for that service of its NIC are for me
  served = 11,   // weftd
  group = 12,    // an attached process: packets to that multicast group are for me
  grouped = 13,  // weftd
  locate = 14,   // an attached process: does somebody have that address?
  located = 15,  // weftd
};

// Every message begins with this.
struct AttachHeader {
  std::uint32_t magic = kAttachMagic;
  std::uint16_t version = kAttachVersion;
  AttachMessage type{};
};

enum AttachFlags : std::uint32_t {
  kNoDirectRings = 1,
};
inline constexpr std::uint32_t kAttachFlags = kNoDirectRings;

struct AttachRequest {
  AttachHeader header{.type = AttachMessage::attach};
  std::array<char, kMaxHostName> host{};  // ends with a zero
  std::uint32_t nic = 0;
  std::uint32_t flags = 0;
  std::uint32_t ring_bytes = 0;                          // a wish; 0: weftd decides
  std::uint32_t udp_port = srd::wire::kDestinationPort;  // of the protocol that it speaks
  // After weftd came back: what this process had before. 0: a new place.
  std::uint32_t attachment = 0;
  std::uint32_t life = 0;
};

struct DescribeRequest {
  AttachHeader header{.type = AttachMessage::describe};
  std::array<char, kMaxHostName> host{};
};

struct TapRequest {
  AttachHeader header{.type = AttachMessage::tap};
  std::array<char, kMaxHostName> host{};
};

// The place. All numbers stay as they are for as long as the process has it.
struct AttachReply {
  AttachHeader header{.type = AttachMessage::attached};
  std::array<std::byte, 16> address{};
  std::uint32_t attachment = 0;
  std::uint32_t life = 0;
  std::uint32_t first_qpn = 0;
  std::uint32_t qpn_count = 0;
  std::uint32_t mtu = 0;
  std::uint32_t ring_bytes = 0;
  // Of the modelled network, in the time of this machine.
  std::uint64_t bits_per_second = 0;  // of this NIC's link
  std::uint64_t round_trip = 0;       // nanoseconds, without queues; 0: nothing is modelled
  std::uint64_t trims = 0;            // 1: what finds no room is cut, not lost
  std::uint64_t link_up = 1;          // of this NIC; later changes are notices
};

// The addresses of the first `nics` NICs.
struct HostReply {
  AttachHeader header{.type = AttachMessage::host};
  std::uint32_t nics = 0;
  std::array<std::array<std::byte, 16>, kMaxNicsPerHost> addresses{};
};

struct RefusedReply {
  AttachHeader header{.type = AttachMessage::refused};
  std::array<char, 200> text{};
};

// direct: from now on the ring to `peer`, whose other end that process has; it is end 0 or 1 of the
// memory. undirect: the fields after `attachment` mean nothing.
struct DirectNotice {
  AttachHeader header{.type = AttachMessage::direct};
  std::array<std::byte, 16> peer{};
  std::uint32_t attachment = 0;
  std::uint32_t life = 0;
  std::uint32_t ring_bytes = 0;
  std::uint32_t end = 0;
};

struct LinkNotice {
  AttachHeader header{.type = AttachMessage::link};
  std::uint32_t up = 1;  // 0: nothing passes, in one direction at least
};

// Of connection management: a port of rdma_cm with its port space. A process answers to it until
// it says otherwise, or is gone.
struct ServiceRequest {
  AttachHeader header{.type = AttachMessage::service};
  std::uint64_t service = 0;
  std::uint32_t wanted = 1;  // 0: not any more; that is not answered
  std::uint32_t padding = 0;
};

struct ServiceReply {
  AttachHeader header{.type = AttachMessage::served};
  std::uint64_t service = 0;
  std::uint32_t granted = 0;  // 0: another process has it
  std::uint32_t padding = 0;
};

// Of a multicast group, which the process is a member of until it says otherwise, or is gone; or of
// any NIC.
struct AddressRequest {
  AttachHeader header{};
  std::array<std::byte, 16> address{};
  std::uint32_t wanted = 1;  // group: 0: not any more; that is not answered
  std::uint32_t padding = 0;
};

enum class Presence : std::uint32_t {
  nobody = 0,
  here = 1,     // a NIC of this network
  unknown = 2,  // weftd has ports to the outside, and it may be there
};

struct AddressReply {
  AttachHeader header{};
  std::array<std::byte, 16> address{};
  std::uint32_t answer = 0;  // group: 1: granted, 0: in too many; locate: a Presence
  std::uint32_t padding = 0;
};

static_assert(std::is_trivially_copyable_v<AddressRequest> &&
              std::is_trivially_copyable_v<AddressReply>);
static_assert(
    std::is_trivially_copyable_v<AttachRequest> && std::is_trivially_copyable_v<AttachReply> &&
    std::is_trivially_copyable_v<HostReply> && std::is_trivially_copyable_v<RefusedReply> &&
    std::is_trivially_copyable_v<DirectNotice> && std::is_trivially_copyable_v<LinkNotice> &&
    std::is_trivially_copyable_v<ServiceRequest> && std::is_trivially_copyable_v<ServiceReply>);

// `message` is an optional of one of these structs.
template <class Message>
[[nodiscard]] bool is_well_formed(const Message& message, AttachMessage type) {
  return message && message->header.magic == kAttachMagic &&
         message->header.version == kAttachVersion && message->header.type == type;
}

}  // namespace weft::attach
