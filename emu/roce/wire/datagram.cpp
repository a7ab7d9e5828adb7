// Owns reading and writing of Ethernet, IP and UDP headers around RoCEv2 (annex 17). Lengths are
// checked against each other before anything behind them is looked at; IPv4 headers with options
// and fragments are refused, as senders of RoCE make none.
#include "emu/roce/wire/datagram.hpp"

#include <boost/endian/conversion.hpp>
#include <cstring>

#include "emu/roce/wire/headers.hpp"
#include "emu/roce/wire/icrc.hpp"

namespace weft::roce::wire {
namespace {

constexpr std::size_t kIpv4 = 20;
constexpr std::size_t kIpv6 = 40;
constexpr std::size_t kUdp = 8;
constexpr std::uint16_t kTypeIpv4 = 0x0800;
constexpr std::uint16_t kTypeIpv6 = 0x86DD;
constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::uint16_t kDontFragment = 0x4000;

std::uint8_t get8(const std::byte* at) { return std::to_integer<std::uint8_t>(*at); }
std::uint16_t get16(const std::byte* at) {
  return static_cast<std::uint16_t>(get8(at) << 8 | get8(at + 1));
}
void put8(std::byte* at, unsigned value) { *at = static_cast<std::byte>(value); }
void put16(std::byte* at, std::size_t value) {
  put8(at, static_cast<unsigned>(value >> 8) & 0xFF);
  put8(at + 1, static_cast<unsigned>(value) & 0xFF);
}

// Of an IPv4 header; 0 over one whose checksum is right.
std::uint16_t checksum(const std::byte* ip) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < kIpv4; i += 2) {
    sum += get16(ip + i);
  }
  sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(~(sum + (sum >> 16)));
}

void read_ipv4(const std::byte* ip, DatagramHeader& header) {
  header.traffic_class = get8(&ip[1]);
  header.identification = get16(&ip[4]);
  header.hop_limit = get8(&ip[8]);
  header.source = srd::Address::v4(&ip[12]);
  header.destination = srd::Address::v4(&ip[16]);
}

void read_ipv6(const std::byte* ip, DatagramHeader& header) {
  header.traffic_class = static_cast<std::uint8_t>((get8(&ip[0]) & 0xF) << 4 | get8(&ip[1]) >> 4);
  header.flow_label = (get8(&ip[1]) & 0xFU) << 16 | get16(&ip[2]);
  header.hop_limit = get8(&ip[7]);
  std::memcpy(&header.source, &ip[8], sizeof header.source);
  std::memcpy(&header.destination, &ip[24], sizeof header.destination);
}

DatagramFault parse_ipv4(std::span<const std::byte> ip, Datagram& datagram, std::size_t& size) {
  if (ip.size() < kIpv4 + kUdp) {
    return DatagramFault::too_short;
  }
  // Ethernet may have padded a short frame, so the packet's own length counts, not the frame's.
  size = get16(&ip[2]);
  // More-fragments and the offset; don't-fragment, which RoCE senders set, is not among them.
  constexpr unsigned kMoreOrOffset = 0x3FFF;
  if (get8(&ip[0]) != 0x45 || (get16(&ip[6]) & kMoreOrOffset) != 0 || size > ip.size() ||
      size < kIpv4 + kUdp || checksum(ip.data()) != 0) {
    return DatagramFault::bad_ip;
  }
  if (get8(&ip[9]) != kProtocolUdp) {
    return DatagramFault::not_udp;
  }
  read_ipv4(ip.data(), datagram.header);
  datagram.ip_udp = ip.first(kIpv4 + kUdp);
  return DatagramFault::none;
}

DatagramFault parse_ipv6(std::span<const std::byte> ip, Datagram& datagram, std::size_t& size) {
  if (ip.size() < kIpv6 + kUdp) {
    return DatagramFault::too_short;
  }
  size = kIpv6 + get16(&ip[4]);
  if ((get8(&ip[0]) >> 4) != 6 || size > ip.size() || size < kIpv6 + kUdp) {
    return DatagramFault::bad_ip;
  }
  // Extension headers are refused with this: RoCE senders make none.
  if (get8(&ip[6]) != kProtocolUdp) {
    return DatagramFault::not_udp;
  }
  read_ipv6(ip.data(), datagram.header);
  datagram.ip_udp = ip.first(kIpv6 + kUdp);
  return DatagramFault::none;
}

}  // namespace

// The two envelopes differ in length, so the family needs no further look.
bool read_envelope(std::span<const std::byte> envelope, DatagramHeader& header) {
  const bool is_ipv4 = envelope.size() == kEthernetHeader + kIpv4 + kUdp;
  if (!is_ipv4 && envelope.size() != kEthernetHeader + kIpv6 + kUdp) {
    return false;
  }
  std::memcpy(header.link.data(), envelope.data(), header.link.size());
  const std::byte* const ip = envelope.data() + kEthernetHeader;
  is_ipv4 ? read_ipv4(ip, header) : read_ipv6(ip, header);
  header.source_port = get16(envelope.data() + envelope.size() - kUdp);
  return true;
}

DatagramFault parse_datagram(std::span<const std::byte> frame, Datagram& datagram) {
  if (frame.size() < kEthernetHeader) {
    return DatagramFault::too_short;
  }
  std::memcpy(datagram.header.link.data(), frame.data(), datagram.header.link.size());
  const std::uint16_t type = get16(&frame[12]);
  const auto ip = frame.subspan(kEthernetHeader);
  std::size_t size = 0;  // of the IP packet: a short frame is padded by Ethernet
  DatagramFault fault = DatagramFault::not_ip;
  if (type == kTypeIpv4) {
    fault = parse_ipv4(ip, datagram, size);
  } else if (type == kTypeIpv6) {
    fault = parse_ipv6(ip, datagram, size);
  }
  if (fault != DatagramFault::none) {
    return fault;
  }
  const std::size_t headers = datagram.ip_udp.size();
  const std::byte* const udp = datagram.ip_udp.data() + headers - kUdp;
  datagram.header.source_port = get16(udp);
  if (get16(udp + 2) != kUdpPort) {
    return DatagramFault::other_port;
  }
  if (get16(udp + 4) != size - (headers - kUdp)) {
    return DatagramFault::bad_udp_length;
  }
  if (size < headers + sizeof(Bth) + kIcrcSize) {
    return DatagramFault::too_short;
  }
  datagram.packet = ip.subspan(headers, size - headers - kIcrcSize);
  std::uint32_t icrc_bytes = 0;
  std::memcpy(&icrc_bytes, ip.data() + size - kIcrcSize, kIcrcSize);
  // The ICRC is the only little-endian number in the packet.
  datagram.icrc = boost::endian::little_to_native(icrc_bytes);
  return DatagramFault::none;
}

bool icrc_is_right(const Datagram& datagram) {
  return icrc(datagram.ip_udp, datagram.packet) == datagram.icrc;
}

std::size_t write_ip_header(const DatagramHeader& header, std::size_t udp_size,
                            std::span<std::byte, 40> to) {
  std::byte* const ip = to.data();
  if (is_mapped_ipv4(header.destination)) {
    put16(ip, 0x4500U | header.traffic_class);
    put16(ip + 2, kIpv4 + udp_size);
    put16(ip + 4, header.identification);
    put16(ip + 6, kDontFragment);
    put8(ip + 8, header.hop_limit);
    put8(ip + 9, kProtocolUdp);
    put16(ip + 10, 0);
    std::memcpy(ip + 12, &header.source.bytes[12], 4);
    std::memcpy(ip + 16, &header.destination.bytes[12], 4);
    put16(ip + 10, checksum(ip));
    return kIpv4;
  }
  put8(ip, 0x60U | header.traffic_class >> 4);
  put8(ip + 1, (header.traffic_class & 0xFU) << 4 | (header.flow_label >> 16 & 0xFU));
  put16(ip + 2, header.flow_label & 0xFFFF);
  put16(ip + 4, udp_size);
  put8(ip + 6, kProtocolUdp);
  put8(ip + 7, header.hop_limit);
  std::memcpy(ip + 8, &header.source, sizeof header.source);
  std::memcpy(ip + 24, &header.destination, sizeof header.destination);
  return kIpv6;
}

// A UDP checksum of 0 is allowed even over IPv6: the ICRC protects more.
std::size_t write_datagram_header(const DatagramHeader& header, std::size_t packet_size,
                                  std::span<std::byte, kEthernetHeader + kLargestIpUdp> to) {
  std::memcpy(to.data(), header.link.data(), header.link.size());
  put16(&to[12], is_mapped_ipv4(header.destination) ? kTypeIpv4 : kTypeIpv6);
  const std::size_t udp_size = kUdp + packet_size + kIcrcSize;
  const std::size_t ip = write_ip_header(header, udp_size, to.subspan<kEthernetHeader, 40>());
  std::byte* const udp = to.data() + kEthernetHeader + ip;
  put16(udp, header.source_port);
  put16(udp + 2, kUdpPort);
  put16(udp + 4, udp_size);
  put16(udp + 6, 0);
  return kEthernetHeader + ip + kUdp;
}

bool is_mapped_ipv4(const srd::Address& address) {
  static constexpr std::array<std::byte, 12> kPrefix = {
      std::byte{}, std::byte{}, std::byte{}, std::byte{}, std::byte{},     std::byte{},
      std::byte{}, std::byte{}, std::byte{}, std::byte{}, std::byte{0xFF}, std::byte{0xFF}};
  return std::memcmp(address.bytes.data(), kPrefix.data(), kPrefix.size()) == 0;
}

bool is_multicast(const srd::Address& address) {
  return is_mapped_ipv4(address) ? (get8(&address.bytes[12]) & 0xF0) == 0xE0
                                 : get8(address.bytes.data()) == 0xFF;
}

// Linux's function, so that a switch's ECMP spreads emulated traffic as it spreads real traffic.
// The result is always in the upper quarter of the ports (kFirstSourcePort).
std::uint16_t source_port_of(std::uint32_t flow_label, std::uint32_t local_qpn,
                             std::uint32_t remote_qpn) {
  constexpr std::uint32_t kFlowBits = 0xFFFFF;
  if (flow_label == 0) {
    std::uint64_t value = std::uint64_t{local_qpn} * remote_qpn;
    value ^= value >> 20;
    value ^= value >> 40;
    flow_label = static_cast<std::uint32_t>(value & kFlowBits);
  }
  return static_cast<std::uint16_t>(kFirstSourcePort |
                                    ((flow_label & 0x3FFF) ^ ((flow_label & 0xFC000) >> 14)));
}

}  // namespace weft::roce::wire
