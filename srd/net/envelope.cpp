// Owns the building, checking and changing of envelopes.
#include "srd/net/envelope.hpp"

#include <boost/endian/conversion.hpp>
#include <cstring>

#include "srd/base/rng.hpp"

namespace weft::srd::net {

MacAddress mac_of(const Address& address) {
  MacAddress mac;
  store_mac(mac.data(), address, address.is_v4());
  return mac;
}

Result<EnvelopeWriter> EnvelopeWriter::make(const Address& from, const UdpPorts& ports) {
  if (!is_host(from)) {
    return fail(
        ErrorCode::invalid_argument,
        "the address of a NIC must not be unspecified, multicast or broadcast: give it one of "
        "its own");
  }
  return EnvelopeWriter{from, ports};
}

EnvelopeWriter::EnvelopeWriter(const Address& from, const UdpPorts& ports) : ports_(ports) {
  store_mac(bytes_.data() + 6, from, from.is_v4());
  std::byte* const ip = bytes_.data() + kEthernetSize;
  if (from.is_v4()) {
    size_ = kEnvelopeSizeV4;
    store16(bytes_.data() + kEtherType, kEtherTypeV4);
    store8(ip, kPlainV4);
    store16(ip + kV4Fragment, kDontFragment);
    store8(ip + kV4Protocol, kUdp);
    std::memcpy(ip + kV4Source, from.v4_bytes().data(), 4);
    constant_sum_ = sum_words(ip, kIpV4Size);
  } else {
    size_ = kEnvelopeSizeV6;
    store16(bytes_.data() + kEtherType, kEtherTypeV6);
    store8(ip + kV6NextHeader, kUdp);
    std::memcpy(ip + kV6Source, from.bytes.data(), from.bytes.size());
  }
  store16(bytes_.data() + size_ - kUdpSize + kUdpDestinationPort, ports.destination);
}

std::size_t cut(std::span<std::byte> frame, const Envelope& envelope, std::size_t keep,
                std::uint8_t dscp) {
  const bool v4 = envelope.source().is_v4();
  const std::size_t head = v4 ? kEnvelopeSizeV4 : kEnvelopeSizeV6;
  std::byte* const ip = frame.data() + kEthernetSize;
  std::byte* const udp = frame.data() + head - kUdpSize;
  const unsigned ip_class = traffic_class(dscp, envelope.ecn());
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
