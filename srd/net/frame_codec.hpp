// Owns what carriers, and weftd, have to know of a protocol whose packets they move: its frame
// codec.
//
// A codec is a type without objects: constants, and static functions of the bytes of a packet. A
// carrier is a template over one codec (RingIo<Codec>), so that each call is resolved when the
// carrier is compiled, and what a protocol does not have costs it nothing. weftd moves frames of
// several protocols: it has a list of codecs (CodecList), told apart by their UDP port. How another
// protocol is added: docs/adr/0005-a-protocol-is-a-frame-codec.md.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "srd/net/address.hpp"
#include "srd/net/envelope.hpp"
#include "srd/net/flow_key.hpp"
#include "srd/net/machine.hpp"

namespace weft::srd::net {

// What a carrier knows of the packets that it sends and receives. `packet` is what UDP carries.
template <class C>
concept FrameCodec = requires(const TxPacket& outgoing, std::span<const std::byte> packet,
                              std::uint8_t dscp, AttachmentId attachment, Life life) {
  // Which frames are of this protocol, and how many paths its source ports tell apart.
  { C::kPorts } -> std::convertible_to<UdpPorts>;
  // The class of service that a packet asks for; of one that is being sent, and of any.
  { C::dscp_of(outgoing) } -> std::same_as<std::uint8_t>;
  { C::dscp_of(packet, bool{}) } -> std::same_as<std::uint8_t>;
  // A switch has cut the payload off, and says so by this code point.
  { C::is_trimmed(dscp) } -> std::same_as<bool>;
  // The route key: the process on the destination NIC, if the packet names one. Packets that name
  // none take the uplink.
  { C::destination_of(outgoing) } -> std::same_as<std::optional<AttachmentId>>;
  // Nothing in the packet says that it is from another process on its source NIC.
  { C::is_from(packet, attachment, life) } -> std::same_as<bool>;
};

// A protocol that has bytes behind the payload. The Machine knows nothing of them when it sends;
// what is received has them still, at its end.
template <class C>
concept WritesTrailer = requires(const TxPacket& outgoing, std::byte* to) {
  { C::trailer_size(outgoing) } -> std::same_as<std::size_t>;
  C::write_trailer(to, outgoing);
};

template <class C>
[[nodiscard]] constexpr std::size_t trailer_size([[maybe_unused]] const TxPacket& packet) {
  if constexpr (WritesTrailer<C>) {
    return C::trailer_size(packet);
  } else {
    return 0;
  }
}

// A protocol whose packets say how many routers they may pass.
template <class C>
concept SetsHopLimit = requires(const TxPacket& outgoing) {
  { C::hop_limit_of(outgoing) } -> std::same_as<std::uint8_t>;
};

template <class C>
[[nodiscard]] constexpr std::uint8_t hop_limit_of([[maybe_unused]] const TxPacket& packet) {
  if constexpr (SetsHopLimit<C>) {
    return C::hop_limit_of(packet);
  } else {
    return kHopLimit;
  }
}

// A protocol whose NICs have further addresses, which follow from the one that names the NIC. They
// are numbered from 1, the naming one among them; a packet that says 0 means that one.
template <class C>
concept HasAliases = requires(const Address& address) {
  // The address that names the NIC which has this one; of what is nobody's, itself.
  { C::nic_of(address) } -> std::same_as<Address>;
  { C::addresses_of(address) } -> std::same_as<std::vector<Address>>;
};
// RxPacket::to, of a packet to a multicast group.
inline constexpr std::uint8_t kToGroup = 0xFF;

template <class C>
[[nodiscard]] inline Address nic_of(const Address& address) {
  if constexpr (HasAliases<C>) {
    return C::nic_of(address);
  } else {
    return address;
  }
}

// What a packet says of the processes at its ends. With `known` false it is of no protocol that we
// know. (An optional would keep the rest in memory, and this is read for each frame.)
struct Steering {
  bool known = false;
  std::uint32_t place = 0;    // the attachment, on the destination NIC
  bool management = false;    // a message of connection management: weftd looks further inside
  bool names_sender = false;  // the packet says which process of its source NIC has sent it:
  AttachmentId sender;
  Life life;
  bool group = false;  // for the members of the multicast group that it is addressed to
};

enum class PacketFault : std::uint8_t { none, malformed, corrupted };

// What weftd knows of the frames that pass it. `frame` begins with its Ethernet header and has
// the codec's port.
template <class C>
concept SteeringCodec = requires(std::span<const std::byte> packet, std::span<std::byte> frame,
                                 std::uint8_t dscp) {
  { C::kPorts } -> std::convertible_to<UdpPorts>;
  // A process has the queue pair numbers that begin with its attachment; so many bits follow.
  { C::kQpnBits } -> std::convertible_to<std::uint32_t>;
  // So much of the beginning of a packet is all that steer() looks at.
  { C::kSteeringBytes } -> std::convertible_to<std::size_t>;
  { C::steer(packet) } -> std::same_as<Steering>;
  // Before a frame from outside comes into memory, where checksums are not looked at any more.
  { C::check(std::span<const std::byte>(frame)) } -> std::same_as<PacketFault>;
  // Where a frame leaves memory, before anything can damage it: computes its checksums.
  C::seal(frame);
  // From which of its bytes on a wrong bit is noticed by the receiver; 0: none.
  { C::checked_from(std::span<const std::byte>(frame)) } -> std::same_as<std::size_t>;
  // Travels in the class for short answers.
  { C::is_control(dscp) } -> std::same_as<bool>;
};

// A protocol whose data packets a full switch may cut instead of dropping them.
template <class C>
concept Trims = requires(std::span<std::byte> frame, std::uint8_t dscp, std::size_t packet_size) {
  { C::kTrimmedPacket } -> std::convertible_to<std::size_t>;  // what is left of one, in bytes
  // By class and size: asked for each frame, so the rest is left to trim().
  { C::may_trim(dscp, packet_size) } -> std::same_as<bool>;
  // Returns the new size of the frame; the old one of a frame that cannot be cut.
  { C::trim(frame) } -> std::same_as<std::size_t>;
};

template <class C>
[[nodiscard]] consteval std::size_t trimmed_packet() {
  if constexpr (Trims<C>) {
    return C::kTrimmedPacket;
  } else {
    return 0;
  }
}

// The protocols that weftd knows. Frames of other protocols are for no process.
template <SteeringCodec... Codecs>
struct CodecList {
  // Calls `visit` with the codec of that frame, an object without state. `otherwise`: there is
  // none.
  template <class Result, class Visit>
  [[nodiscard]] static Result with(const FlowKey& flow, Result otherwise, Visit&& visit) {
    return flow.is_udp()
               ? among<Codecs...>(flow.destination_port(), otherwise, std::forward<Visit>(visit))
               : otherwise;
  }

  // Of the protocol with that port, if we know it.
  [[nodiscard]] static std::optional<std::uint32_t> qpn_bits(std::uint16_t port) {
    std::optional<std::uint32_t> bits;
    (void)((port == Codecs::kPorts.destination && (bits = Codecs::kQpnBits, true)) || ...);
    return bits;
  }
  [[nodiscard]] static Steering steer(const FlowKey& flow) {
    return with(flow, Steering{}, [&](auto codec) {
      const auto packet = flow.payload();
      return packet.size() < codec.kSteeringBytes ? Steering{} : codec.steer(packet);
    });
  }
  // The address that names the NIC, by whichever of them it is called here.
  [[nodiscard]] static Address nic_of(Address address) {
    (void)((address = net::nic_of<Codecs>(address), true) && ...);
    return address;
  }
  [[nodiscard]] static PacketFault check(const FlowKey& flow, std::span<const std::byte> frame) {
    return with(flow, PacketFault::malformed, [&](auto codec) { return codec.check(frame); });
  }
  static void seal(std::span<std::byte> frame) {
    (void)with(FlowKey::parse(frame), false, [&](auto codec) {
      codec.seal(frame);
      return true;
    });
  }
  [[nodiscard]] static std::size_t checked_from(std::span<const std::byte> frame) {
    return with(FlowKey::parse(frame), std::size_t{0},
                [&](auto codec) { return codec.checked_from(frame); });
  }
  [[nodiscard]] static bool is_control(const FlowKey& flow, std::uint8_t dscp) {
    return with(flow, false, [&](auto codec) { return codec.is_control(dscp); });
  }
  // The flow may be of the beginning of the frame only, so its size is given.
  [[nodiscard]] static bool may_trim(const FlowKey& flow, std::uint8_t dscp,
                                     std::size_t frame_size) {
    return with(flow, false, [&](auto codec) {
      if constexpr (Trims<decltype(codec)>) {
        return codec.may_trim(dscp, frame_size - flow.payload_offset());
      } else {
        return false;
      }
    });
  }
  [[nodiscard]] static std::size_t trim(std::span<std::byte> frame) {
    return with(FlowKey::parse(frame), frame.size(), [&](auto codec) {
      if constexpr (Trims<decltype(codec)>) {
        return codec.trim(frame);
      } else {
        return frame.size();
      }
    });
  }

  // The most that any of them asks for.
  static constexpr std::size_t kSteeringBytes = std::max({Codecs::kSteeringBytes...});
  static constexpr std::size_t kTrimmedPacket = std::max({trimmed_packet<Codecs>()...});

 private:
  // Returns what the visit returns without copying it, as an assignment would.
  template <class First, class... Rest, class Result, class Visit>
  [[nodiscard]] static Result among(std::uint16_t port, Result otherwise, Visit&& visit) {
    if (port == First::kPorts.destination) {
      return visit(First{});
    }
    if constexpr (sizeof...(Rest) == 0) {
      return otherwise;
    } else {
      return among<Rest...>(port, otherwise, std::forward<Visit>(visit));
    }
  }
};

}  // namespace weft::srd::net
