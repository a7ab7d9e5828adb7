// Owns the building, checking and trimming of envelopes.
#include "srd/net/envelope.hpp"

#include <boost/endian/conversion.hpp>
#include <cstring>

#include "srd/base/rng.hpp"

namespace weft::srd::net {
namespace {

// Whether a NIC can have this address: it is neither unspecified nor multicast nor broadcast.
bool is_host(const Address& address) {
  if (address.is_v4()) {
    const std::uint8_t first = load8(address.v4_bytes().data());
    return first != 0 && first < 224;
  }
  return address != Address{} && address.bytes[0] != std::byte{0xFF};
}

// The ones' complement sum of 16-bit words, not yet folded.
std::uint32_t sum_words(const std::byte* at, std::size_t size) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < size; i += 2) {
    sum += load16(at + i);
  }
  return sum;
}
std::uint16_t fold(std::uint32_t sum) {
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum += sum >> 16;
  return static_cast<std::uint16_t>(sum);
}

unsigned traffic_class(std::uint8_t dscp, Ecn ecn) {
  return (static_cast<unsigned>(dscp) << 2 | static_cast<unsigned>(ecn)) & 0xFF;
}

// Written to its place at once: a copy of what was just stored piece by piece is slow.
void store_mac(std::byte* to, const Address& address, bool v4) {
  if (v4) {
    store16(to, 0x0200);
    std::memcpy(to + 2, address.v4_bytes().data(), 4);
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

}  // namespace

MacAddress mac_of(const Address& address) {
  MacAddress mac;
  store_mac(mac.data(), address, address.is_v4());
  return mac;
}

Result<EnvelopeWriter> EnvelopeWriter::make(const Address& from) {
  if (!is_host(from)) {
    return fail(
        ErrorCode::invalid_argument,
        "the address of a NIC must not be unspecified, multicast or broadcast: give it one of "
        "its own");
  }
  return EnvelopeWriter{from};
}

EnvelopeWriter::EnvelopeWriter(const Address& from) {
  store_mac(bytes_.data() + 6, from, from.is_v4());
  std::byte* const ip = bytes_.data() + kEthernetSize;
  if (from.is_v4()) {
    size_ = kEnvelopeSizeV4;
    store16(bytes_.data() + kEtherType, kEtherTypeV4);
    store8(ip, kPlainV4);
    store16(ip + kV4Fragment, kDontFragment);
    store8(ip + kV4Hops, kHopLimit);
    store8(ip + kV4Protocol, kUdp);
    std::memcpy(ip + kV4Source, from.v4_bytes().data(), 4);
    constant_sum_ = sum_words(ip, kIpV4Size);
  } else {
    size_ = kEnvelopeSizeV6;
    store16(bytes_.data() + kEtherType, kEtherTypeV6);
    store8(ip + kV6NextHeader, kUdp);
    store8(ip + kV6Hops, kHopLimit);
    std::memcpy(ip + kV6Source, from.bytes.data(), from.bytes.size());
  }
  store16(bytes_.data() + size_ - kUdpSize + kUdpDestinationPort, kDestinationPort);
}

bool EnvelopeWriter::write(std::byte* frame, const Address& to, PathId path, Ecn ecn,
                           std::uint8_t dscp, std::size_t packet_size) const {
  const bool v4 = size_ == kEnvelopeSizeV4;
  if (to.is_v4() != v4 || !is_host(to) || path.value() >= kPathPorts ||
      packet_size > kLargestPacket) {
    return false;
  }
  std::memcpy(frame, bytes_.data(), kEnvelopeSizeV4);
  std::byte* const ip = frame + kEthernetSize;
  const unsigned source_port = kFirstSourcePort + path.value();
  const std::size_t udp_length = kUdpSize + packet_size;
  const unsigned ip_class = traffic_class(dscp, ecn);
  if (v4) {
    const std::size_t length = kIpV4Size + udp_length;
    store8(ip + kV4TrafficClass, ip_class);
    store16(ip + kV4Length, length);
    std::memcpy(ip + kV4Destination, to.v4_bytes().data(), 4);
    const auto sum = static_cast<std::uint32_t>(constant_sum_ + ip_class + length +
                                                sum_words(ip + kV4Destination, 4));
    store16(ip + kV4Checksum, static_cast<std::uint16_t>(~fold(sum)));
  } else {
    std::memcpy(frame + kEnvelopeSizeV4, bytes_.data() + kEnvelopeSizeV4,
                kEnvelopeSizeV6 - kEnvelopeSizeV4);
    store16(ip, 0x6000U | ip_class << 4);
    store16(ip + kV6FlowLabel, source_port);
    store16(ip + kV6Length, udp_length);
    std::memcpy(ip + kV6Destination, to.bytes.data(), to.bytes.size());
  }
  store_mac(frame, to, v4);
  std::byte* const udp = frame + size_ - kUdpSize;
  store16(udp + kUdpSourcePort, source_port);
  store16(udp + kUdpLength, udp_length);
  return true;
}

Envelope Envelope::parse(std::span<const std::byte> frame) {
  Envelope envelope;
  envelope.fault_ = envelope.check(frame);
  return envelope;
}

EnvelopeFault Envelope::check(std::span<const std::byte> frame) {
  if (frame.size() < kEthernetSize) {
    return EnvelopeFault::too_short;
  }
  const std::uint16_t ether_type = load16(frame.data() + kEtherType);
  const auto ip = frame.subspan(kEthernetSize);
  EnvelopeFault fault = EnvelopeFault::not_ip;
  if (ether_type == kEtherTypeV4) {
    fault = check_v4(ip);
  } else if (ether_type == kEtherTypeV6) {
    fault = check_v6(ip);
  }
  if (fault != EnvelopeFault::none) {
    return fault;
  }
  if (!is_host(source_)) {
    return EnvelopeFault::bad_source;
  }
  return is_host(destination_) ? EnvelopeFault::none : EnvelopeFault::bad_destination;
}

EnvelopeFault Envelope::check_v4(std::span<const std::byte> ip) {
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
  return check_udp(ip.subspan(kIpV4Size), length - kIpV4Size);
}

EnvelopeFault Envelope::check_v6(std::span<const std::byte> ip) {
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
  return check_udp(ip.subspan(kIpV6Size), length);
}

// `udp` is what has arrived, perhaps with padding behind it; `claimed` is the size by the IP
// header.
EnvelopeFault Envelope::check_udp(std::span<const std::byte> udp, std::size_t claimed) {
  if (claimed > udp.size()) {
    return EnvelopeFault::bad_ip_length;
  }
  if (load16(udp.data() + kUdpDestinationPort) != kDestinationPort) {
    return EnvelopeFault::other_port;
  }
  if (load16(udp.data() + kUdpLength) != claimed) {
    return EnvelopeFault::bad_udp_length;
  }
  const unsigned source_port = load16(udp.data() + kUdpSourcePort);
  if (source_port - kFirstSourcePort >= kPathPorts) {  // unsigned: smaller ports become huge
    return EnvelopeFault::bad_source_port;
  }
  path_ = static_cast<std::uint16_t>(source_port - kFirstSourcePort);
  packet_ = udp.subspan(kUdpSize, claimed - kUdpSize);
  return EnvelopeFault::none;
}

namespace {

bool can_trim(const Envelope& envelope, std::size_t keep) {
  return envelope.ok() && envelope.dscp() == kDscpData && envelope.packet().size() > keep;
}

}  // namespace

bool can_trim(std::span<const std::byte> frame, std::size_t keep) {
  return can_trim(Envelope::parse(frame), keep);
}

std::size_t trim(std::span<std::byte> frame, std::size_t keep) {
  const Envelope envelope = Envelope::parse(frame);
  if (!can_trim(envelope, keep)) {
    return frame.size();
  }
  const bool v4 = envelope.source().is_v4();
  const std::size_t head = v4 ? kEnvelopeSizeV4 : kEnvelopeSizeV6;
  std::byte* const ip = frame.data() + kEthernetSize;
  std::byte* const udp = frame.data() + head - kUdpSize;
  const unsigned ip_class = traffic_class(kDscpTrimmed, envelope.ecn());
  if (v4) {
    store8(ip + kV4TrafficClass, ip_class);
    store16(ip + kV4Length, kIpV4Size + kUdpSize + keep);
    store16(ip + kV4Checksum, 0);
    store16(ip + kV4Checksum, static_cast<std::uint16_t>(~fold(sum_words(ip, kIpV4Size))));
  } else {
    store16(ip, 0x6000U | ip_class << 4 | (load16(ip) & 0x000FU));
    store16(ip + kV6Length, kUdpSize + keep);
  }
  store16(udp + kUdpLength, kUdpSize + keep);
  store16(udp + kUdpChecksum, 0);
  return head + keep;
}

const char* to_string(EnvelopeFault fault) {
  switch (fault) {
    case EnvelopeFault::none:
      return "none";
    case EnvelopeFault::too_short:
      return "too_short";
    case EnvelopeFault::not_ip:
      return "not_ip";
    case EnvelopeFault::bad_ip_version:
      return "bad_ip_version";
    case EnvelopeFault::ip_options:
      return "ip_options";
    case EnvelopeFault::fragmented:
      return "fragmented";
    case EnvelopeFault::bad_ip_length:
      return "bad_ip_length";
    case EnvelopeFault::bad_ip_checksum:
      return "bad_ip_checksum";
    case EnvelopeFault::not_udp:
      return "not_udp";
    case EnvelopeFault::bad_udp_length:
      return "bad_udp_length";
    case EnvelopeFault::other_port:
      return "other_port";
    case EnvelopeFault::bad_source_port:
      return "bad_source_port";
    case EnvelopeFault::bad_source:
      return "bad_source";
    case EnvelopeFault::bad_destination:
      return "bad_destination";
  }
  return "unknown";
}

namespace {

bool has_ip(std::span<const std::byte> frame, std::uint16_t type, std::size_t header) {
  return frame.size() >= kEthernetSize + header && load16(&frame[kEtherType]) == type;
}

}  // namespace

unsigned traffic_class(std::span<const std::byte> frame) {
  if (has_ip(frame, kEtherTypeV4, kIpV4Size)) {
    return load8(&frame[kEthernetSize + kV4TrafficClass]);
  }
  if (has_ip(frame, kEtherTypeV6, kIpV6Size)) {
    return (load16(&frame[kEthernetSize]) >> 4) & 0xFFU;
  }
  return 0;
}

bool mark_congested(std::span<std::byte> frame) {
  const unsigned before = traffic_class(frame);
  if ((before & 3U) == 0) {
    return false;
  }
  std::byte* ip = &frame[kEthernetSize];
  if (!has_ip(frame, kEtherTypeV4, kIpV4Size)) {
    ip[1] |= std::byte{0x30};
    return true;
  }
  store8(ip + kV4TrafficClass, before | 3U);
  // The incremental update of RFC 1624, for a word that grows without overflow.
  unsigned sum = (~load16(ip + kV4Checksum) & 0xFFFFU) + ((before | 3U) - before);
  sum = ~((sum & 0xFFFFU) + (sum >> 16)) & 0xFFFFU;
  store16(ip + kV4Checksum, sum);
  return true;
}

}  // namespace weft::srd::net
