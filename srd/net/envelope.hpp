// Owns the envelope of a packet: Ethernet II, IPv4 or IPv6, and UDP, as [wire 2] specifies them.
#pragma once

#include <array>
#include <boost/endian/conversion.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "srd/base/result.hpp"
#include "srd/base/rng.hpp"
#include "srd/net/address.hpp"
#include "srd/net/ip_layout.hpp"

namespace weft::srd::net {

// By which UDP ports the frames of a protocol are known. The path is the index of the source port
// in a range of so many.
struct UdpPorts {
  std::uint16_t destination = 0;
  std::uint16_t first_source = 0;
  std::uint16_t paths = 0;
  bool groups = false;  // packets may go to multicast groups
};

inline constexpr std::uint8_t kHopLimit = 64;
inline constexpr std::size_t kEnvelopeSizeV4 = kEthernetSize + kIpV4Size + kUdpSize;
inline constexpr std::size_t kEnvelopeSizeV6 = kEthernetSize + kIpV6Size + kUdpSize;
// The largest frame around a packet of so many bytes, whatever its addresses.
[[nodiscard]] constexpr std::size_t max_frame_for(std::size_t mtu) { return kEnvelopeSizeV6 + mtu; }
// The largest that the length fields of IP and UDP can express.
inline constexpr std::size_t kLargestPacket = 0xFFFF - kIpV4Size - kUdpSize;

// [wire 2.1] The locally administered Ethernet address that follows from a NIC's address: no NIC
// needs ARP or neighbour discovery.
using MacAddress = std::array<std::byte, 6>;
[[nodiscard]] MacAddress mac_of(const Address& address);

// Whether a NIC can have this address: it is neither unspecified nor multicast nor broadcast.
[[nodiscard]] inline bool is_host(const Address& address) {
  if (address.is_v4()) {
    const std::uint8_t first = load8(address.v4_bytes().data());
    return first != 0 && first < 224;
  }
  return address != Address{} && address.bytes[0] != std::byte{0xFF};
}

// A multicast group.
[[nodiscard]] inline bool is_group(const Address& address) {
  if (address.is_v4()) {
    return load8(address.v4_bytes().data()) >> 4 == 0xE;
  }
  return address.bytes[0] == std::byte{0xFF};
}

// Writes envelopes for what one NIC sends: a template, patched per packet.
class EnvelopeWriter {
 public:
  [[nodiscard]] static Result<EnvelopeWriter> make(const Address& from, const UdpPorts& ports);

  [[nodiscard]] std::size_t size() const { return size_; }

  // Fills the first size() bytes of a frame whose packet of `packet_size` bytes follows them.
  // False, and nothing written, if the destination is not of the NIC's address family, or no NIC's
  // address (nor a group's, where the protocol has them), the path is out of range, or the packet
  // is too large.
  [[nodiscard]] bool write(std::byte* frame, const Address& to, PathId path, Ecn ecn,
                           std::uint8_t dscp, std::size_t packet_size,
                           std::uint8_t hop_limit = kHopLimit) const;

 private:
  EnvelopeWriter(const Address& from, const UdpPorts& ports);

  std::array<std::byte, kEnvelopeSizeV6> bytes_{};
  std::size_t size_ = 0;
  UdpPorts ports_;
  std::uint32_t constant_sum_ = 0;  // IPv4: of the header words that are the same in every packet
};

// [wire 5.3] Why a frame does not hold a packet of the protocol. The counter of each is
// "rx_envelope_" followed by its name.
enum class EnvelopeFault : std::uint8_t {
  none = 0,
  too_short,
  not_ip,
  bad_ip_version,
  ip_options,
  fragmented,
  bad_ip_length,
  bad_ip_checksum,
  not_udp,
  bad_udp_length,
  other_port,
  bad_source_port,
  bad_source,
  bad_destination,
};
inline constexpr std::size_t kEnvelopeFaults =
    static_cast<std::size_t>(EnvelopeFault::bad_destination) + 1;
[[nodiscard]] const char* to_string(EnvelopeFault fault);

// A checked look at a frame, which must outlive it. Unless ok(), only fault() may be called.
class Envelope {
 public:
  [[nodiscard]] static Envelope parse(std::span<const std::byte> frame, UdpPorts ports);

  [[nodiscard]] bool ok() const { return fault_ == EnvelopeFault::none; }
  [[nodiscard]] EnvelopeFault fault() const { return fault_; }

  [[nodiscard]] const Address& source() const { return source_; }
  [[nodiscard]] const Address& destination() const { return destination_; }
  [[nodiscard]] PathId path() const { return PathId{path_}; }
  [[nodiscard]] Ecn ecn() const { return static_cast<Ecn>(traffic_class_ & 3); }
  [[nodiscard]] std::uint8_t dscp() const { return static_cast<std::uint8_t>(traffic_class_ >> 2); }
  [[nodiscard]] std::uint8_t hop_limit() const { return hop_limit_; }
  // The transport packet.
  [[nodiscard]] std::span<const std::byte> packet() const { return packet_; }

 private:
  [[nodiscard]] EnvelopeFault check(std::span<const std::byte> frame, UdpPorts ports);
  [[nodiscard]] EnvelopeFault check_v4(std::span<const std::byte> ip, UdpPorts ports);
  [[nodiscard]] EnvelopeFault check_v6(std::span<const std::byte> ip, UdpPorts ports);
  [[nodiscard]] EnvelopeFault check_udp(std::span<const std::byte> udp, std::size_t claimed,
                                        UdpPorts ports);

  std::span<const std::byte> packet_;
  Address source_;
  Address destination_;
  std::uint16_t path_ = 0;
  std::uint8_t traffic_class_ = 0;
  std::uint8_t hop_limit_ = 0;
  EnvelopeFault fault_ = EnvelopeFault::none;
};

// The IP traffic class (DSCP and ECN) of any Ethernet frame that begins with these bytes; 0 if
// there is no IP header.
[[nodiscard]] unsigned traffic_class(std::span<const std::byte> frame);

// Sets the congestion mark, as a congested switch does. False: the frame is not ECN-capable.
bool mark_congested(std::span<std::byte> frame);

// Cuts a frame down to `keep` bytes of its packet, fewer than there are, and gives it another DSCP.
// `envelope` is the frame's. Returns the new size of the frame.
[[nodiscard]] std::size_t cut(std::span<std::byte> frame, const Envelope& envelope,
                              std::size_t keep, std::uint8_t dscp);

// --- What happens for each packet is compiled into each carrier, with its protocol's ports as
// constants: that is worth an eighth of a small packet's way through a ring.

[[nodiscard]] inline unsigned traffic_class(std::uint8_t dscp, Ecn ecn) {
  return (static_cast<unsigned>(dscp) << 2 | static_cast<unsigned>(ecn)) & 0xFF;
}

// Written to its place at once: a copy of what was just stored piece by piece is slow.
inline void store_mac(std::byte* to, const Address& address, bool v4) {
  if (v4) {
    store16(to, 0x0200);
    std::memcpy(to + 2, address.v4_bytes().data(), 4);
    return;
  }
  // An EUI-64 of a local Ethernet address is that address, with one bit inverted and two bytes put
  // into its middle.
  if (load16(&address.bytes[11]) == 0xFFFE && (load8(&address.bytes[8]) & 3U) == 0) {
    store16(to, load16(&address.bytes[8]) ^ 0x0200U);
    std::memcpy(to + 2, &address.bytes[10], 1);
    std::memcpy(to + 3, &address.bytes[13], 3);
    return;
  }
  std::uint64_t high;
  std::uint64_t low;
  std::memcpy(&high, address.bytes.data(), sizeof high);
  std::memcpy(&low, address.bytes.data() + sizeof high, sizeof low);
  const std::uint64_t hash =
      mix64(boost::endian::big_to_native(low) ^ mix64(boost::endian::big_to_native(high)));
  store16(to, 0x0600 | hash >> 56);
  store16(to + 2, hash >> 40 & 0xFFFF);
  store16(to + 4, hash >> 24 & 0xFFFF);
}

// RFC 1112 and RFC 2464.
inline void store_group_mac(std::byte* to, const Address& group, bool v4) {
  std::memcpy(to + 2, &group.bytes[12], 4);
  store16(to, 0x3333);
  if (v4) {
    store16(to, 0x0100);
    store8(to + 2, 0x5E);
    store8(to + 3, load8(&group.bytes[13]) & 0x7FU);
  }
}

[[gnu::always_inline]] inline bool EnvelopeWriter::write(std::byte* frame, const Address& to,
                                                         PathId path, Ecn ecn, std::uint8_t dscp,
                                                         std::size_t packet_size,
                                                         std::uint8_t hop_limit) const {
  const bool v4 = size_ == kEnvelopeSizeV4;
  const bool host = is_host(to);
  if (to.is_v4() != v4 || !(host || (ports_.groups && is_group(to))) ||
      path.value() >= ports_.paths || packet_size > kLargestPacket) {
    return false;
  }
  std::memcpy(frame, bytes_.data(), kEnvelopeSizeV4);
  std::byte* const ip = frame + kEthernetSize;
  const unsigned source_port = ports_.first_source + unsigned{path.value()};
  const std::size_t udp_length = kUdpSize + packet_size;
  const unsigned ip_class = traffic_class(dscp, ecn);
  if (v4) {
    const std::size_t length = kIpV4Size + udp_length;
    store8(ip + kV4TrafficClass, ip_class);
    store8(ip + kV4Hops, hop_limit);
    store16(ip + kV4Length, length);
    std::memcpy(ip + kV4Destination, to.v4_bytes().data(), 4);
    const std::size_t hops = std::size_t{hop_limit} << 8;
    const auto sum = static_cast<std::uint32_t>(constant_sum_ + ip_class + length + hops +
                                                sum_words(ip + kV4Destination, 4));
    store16(ip + kV4Checksum, static_cast<std::uint16_t>(~fold(sum)));
  } else {
    std::memcpy(frame + kEnvelopeSizeV4, bytes_.data() + kEnvelopeSizeV4,
                kEnvelopeSizeV6 - kEnvelopeSizeV4);
    store16(ip, 0x6000U | ip_class << 4);
    store16(ip + kV6FlowLabel, source_port);
    store8(ip + kV6Hops, hop_limit);
    store16(ip + kV6Length, udp_length);
    std::memcpy(ip + kV6Destination, to.bytes.data(), to.bytes.size());
  }
  if (host) [[likely]] {
    store_mac(frame, to, v4);
  } else {
    store_group_mac(frame, to, v4);
  }
  std::byte* const udp = frame + size_ - kUdpSize;
  store16(udp + kUdpSourcePort, source_port);
  store16(udp + kUdpLength, udp_length);
  return true;
}

[[gnu::always_inline]] inline Envelope Envelope::parse(std::span<const std::byte> frame,
                                                       UdpPorts ports) {
  Envelope envelope;
  envelope.fault_ = envelope.check(frame, ports);
  return envelope;
}

[[gnu::always_inline]] inline EnvelopeFault Envelope::check(std::span<const std::byte> frame,
                                                            UdpPorts ports) {
  if (frame.size() < kEthernetSize) {
    return EnvelopeFault::too_short;
  }
  const std::uint16_t ether_type = load16(frame.data() + kEtherType);
  const auto ip = frame.subspan(kEthernetSize);
  EnvelopeFault fault = EnvelopeFault::not_ip;
  if (ether_type == kEtherTypeV4) {
    fault = check_v4(ip, ports);
  } else if (ether_type == kEtherTypeV6) {
    fault = check_v6(ip, ports);
  }
  if (fault != EnvelopeFault::none) {
    return fault;
  }
  if (!is_host(source_)) {
    return EnvelopeFault::bad_source;
  }
  return is_host(destination_) || (ports.groups && is_group(destination_))
             ? EnvelopeFault::none
             : EnvelopeFault::bad_destination;
}

[[gnu::always_inline]] inline EnvelopeFault Envelope::check_v4(std::span<const std::byte> ip,
                                                               UdpPorts ports) {
  if (ip.size() < kIpV4Size + kUdpSize) {
    return EnvelopeFault::too_short;
  }
  const std::uint8_t version = load8(ip.data());
  if (version >> 4 != 4) {
    return EnvelopeFault::bad_ip_version;
  }
  if (version != kPlainV4) {
    return EnvelopeFault::ip_options;
  }
  if (fold(sum_words(ip.data(), kIpV4Size)) != 0xFFFF) {
    return EnvelopeFault::bad_ip_checksum;
  }
  if ((load16(ip.data() + kV4Fragment) & ~kDontFragment) != 0) {
    return EnvelopeFault::fragmented;
  }
  if (load8(ip.data() + kV4Protocol) != kUdp) {
    return EnvelopeFault::not_udp;
  }
  traffic_class_ = load8(ip.data() + kV4TrafficClass);
  hop_limit_ = load8(ip.data() + kV4Hops);
  source_ = Address::v4(ip.data() + kV4Source);
  destination_ = Address::v4(ip.data() + kV4Destination);
  const std::size_t length = load16(ip.data() + kV4Length);
  if (length < kIpV4Size + kUdpSize) {
    return EnvelopeFault::bad_ip_length;
  }
  return check_udp(ip.subspan(kIpV4Size), length - kIpV4Size, ports);
}

[[gnu::always_inline]] inline EnvelopeFault Envelope::check_v6(std::span<const std::byte> ip,
                                                               UdpPorts ports) {
  if (ip.size() < kIpV6Size + kUdpSize) {
    return EnvelopeFault::too_short;
  }
  const std::uint16_t first = load16(ip.data());
  if (first >> 12 != 6) {
    return EnvelopeFault::bad_ip_version;
  }
  if (load8(ip.data() + kV6NextHeader) != kUdp) {
    return EnvelopeFault::not_udp;
  }
  traffic_class_ = static_cast<std::uint8_t>(first >> 4);
  hop_limit_ = load8(ip.data() + kV6Hops);
  std::memcpy(source_.bytes.data(), ip.data() + kV6Source, source_.bytes.size());
  std::memcpy(destination_.bytes.data(), ip.data() + kV6Destination, destination_.bytes.size());
  // Inside the transport a mapped address means IPv4: in an IPv6 header it would be an alias of
  // another NIC.
  if (source_.is_v4()) {
    return EnvelopeFault::bad_source;
  }
  if (destination_.is_v4()) {
    return EnvelopeFault::bad_destination;
  }
  const std::size_t length = load16(ip.data() + kV6Length);
  if (length < kUdpSize) {
    return EnvelopeFault::bad_ip_length;
  }
  return check_udp(ip.subspan(kIpV6Size), length, ports);
}

// `udp` is what has arrived, perhaps with padding behind it; `claimed` is the size by the IP
// header.
[[gnu::always_inline]] inline EnvelopeFault Envelope::check_udp(std::span<const std::byte> udp,
                                                                std::size_t claimed,
                                                                UdpPorts ports) {
  if (claimed > udp.size()) {
    return EnvelopeFault::bad_ip_length;
  }
  if (load16(udp.data() + kUdpDestinationPort) != ports.destination) {
    return EnvelopeFault::other_port;
  }
  if (load16(udp.data() + kUdpLength) != claimed) {
    return EnvelopeFault::bad_udp_length;
  }
  const unsigned source_port = load16(udp.data() + kUdpSourcePort);
  if (source_port - ports.first_source >= ports.paths) {  // unsigned: smaller ports become huge
    return EnvelopeFault::bad_source_port;
  }
  path_ = static_cast<std::uint16_t>(source_port - ports.first_source);
  packet_ = udp.subspan(kUdpSize, claimed - kUdpSize);
  return EnvelopeFault::none;
}

}  // namespace weft::srd::net
