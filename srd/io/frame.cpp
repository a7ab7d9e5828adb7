// Owns writing and reading envelopes.
#include "srd/io/frame.hpp"

namespace weft::srd {
namespace {

constexpr std::uint16_t kTypeIpv4 = 0x0800;
constexpr std::uint16_t kTypeIpv6 = 0x86DD;
constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::uint8_t kHopLimit = 64;

void put8(std::byte* to, unsigned value) { *to = static_cast<std::byte>(value); }
void put16(std::byte* to, std::size_t value) {
  const auto swapped = __builtin_bswap16(static_cast<std::uint16_t>(value));
  std::memcpy(to, &swapped, sizeof swapped);
}
std::uint16_t get16(const std::byte* from) {
  std::uint16_t value;
  std::memcpy(&value, from, sizeof value);
  return __builtin_bswap16(value);
}
unsigned get8(const std::byte* from) { return std::to_integer<unsigned>(*from); }

void put_mac(std::byte* to, const Address& address) {
  put16(to, 0x0200);
  std::memcpy(to + 2, address.bytes.data() + 12, 4);
}

// The sum of the IPv4 header, whose checksum field is zero or right; 0xFFFF when right.
std::uint16_t ipv4_sum(const std::byte* header) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kIpv4Bytes; i += 4) {
    std::uint32_t word;
    std::memcpy(&word, header + i, sizeof word);
    sum += word;
  }
  sum = (sum & 0xFFFFFFFF) + (sum >> 32);
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

void write_ipv4(std::byte* ip, const FrameInfo& info, std::size_t packet_size) {
  put16(ip, 0x4500U | static_cast<unsigned>(info.ecn));
  put16(ip + 2, kIpv4Bytes + kUdpBytes + packet_size);
  put16(ip + 4, 0);
  put16(ip + 6, 0x4000);  // do not fragment
  put8(ip + 8, kHopLimit);
  put8(ip + 9, kProtocolUdp);
  put16(ip + 10, 0);
  std::memcpy(ip + 12, info.from.bytes.data() + 12, 4);
  std::memcpy(ip + 16, info.to.bytes.data() + 12, 4);
  const auto checksum = static_cast<std::uint16_t>(~ipv4_sum(ip));
  std::memcpy(ip + 10, &checksum, sizeof checksum);
}

void write_ipv6(std::byte* ip, const FrameInfo& info, std::size_t packet_size) {
  put16(ip, 0x6000U | (static_cast<unsigned>(info.ecn) << 4));
  put16(ip + 2, 0);
  put16(ip + 4, kUdpBytes + packet_size);
  put8(ip + 6, kProtocolUdp);
  put8(ip + 7, kHopLimit);
  std::memcpy(ip + 8, info.from.bytes.data(), 16);
  std::memcpy(ip + 24, info.to.bytes.data(), 16);
}

Address mapped(const std::byte* ipv4) {
  Address address;
  address.bytes[10] = address.bytes[11] = std::byte{0xFF};
  std::memcpy(address.bytes.data() + 12, ipv4, 4);
  return address;
}

// Each gives the bytes after the IP header as far as the header says, or nothing.
std::span<const std::byte> read_ipv4(std::span<const std::byte> ip, FrameInfo& info) {
  if (ip.size() < kIpv4Bytes || get8(ip.data()) != 0x45 || get8(&ip[9]) != kProtocolUdp ||
      (get16(&ip[6]) & 0x3FFF) != 0 || ipv4_sum(ip.data()) != 0xFFFF) {
    return {};
  }
  const std::size_t total = get16(&ip[2]);
  if (total < kIpv4Bytes || total > ip.size()) {
    return {};
  }
  info.ecn = static_cast<Ecn>(get8(&ip[1]) & 3);
  info.from = mapped(&ip[12]);
  info.to = mapped(&ip[16]);
  return ip.subspan(kIpv4Bytes, total - kIpv4Bytes);
}

std::span<const std::byte> read_ipv6(std::span<const std::byte> ip, FrameInfo& info) {
  if (ip.size() < kIpv6Bytes || (get8(ip.data()) >> 4) != 6 || get8(&ip[6]) != kProtocolUdp) {
    return {};
  }
  const std::size_t length = get16(&ip[4]);
  if (length > ip.size() - kIpv6Bytes) {
    return {};
  }
  info.ecn = static_cast<Ecn>((get8(&ip[1]) >> 4) & 3);
  std::memcpy(info.from.bytes.data(), &ip[8], 16);
  std::memcpy(info.to.bytes.data(), &ip[24], 16);
  return ip.subspan(kIpv6Bytes, length);
}

}  // namespace

void write_envelope(std::byte* to, const FrameInfo& info, std::size_t packet_size) {
  const bool ipv4 = is_ipv4(info.to);
  put_mac(to, info.to);
  put_mac(to + 6, info.from);
  put16(to + 12, ipv4 ? kTypeIpv4 : kTypeIpv6);
  std::byte* udp = to + kEthernetBytes;
  if (ipv4) {
    write_ipv4(udp, info, packet_size);
    udp += kIpv4Bytes;
  } else {
    write_ipv6(udp, info, packet_size);
    udp += kIpv6Bytes;
  }
  put16(udp, info.source_port);
  put16(udp + 2, info.destination_port);
  put16(udp + 4, kUdpBytes + packet_size);
  put16(udp + 6, 0);
}

bool parse_frame(std::span<const std::byte> frame, FrameInfo& info) {
  if (frame.size() < kEthernetBytes + kIpv4Bytes + kUdpBytes) {
    return false;
  }
  const std::uint16_t type = get16(&frame[12]);
  const auto ip = frame.subspan(kEthernetBytes);
  std::span<const std::byte> udp;
  if (type == kTypeIpv4) {
    udp = read_ipv4(ip, info);
  } else if (type == kTypeIpv6) {
    udp = read_ipv6(ip, info);
  }
  if (udp.size() < kUdpBytes) {
    return false;
  }
  info.source_port = get16(&udp[0]);
  info.destination_port = get16(&udp[2]);
  const std::size_t length = get16(&udp[4]);
  if (length < kUdpBytes || length > udp.size()) {
    return false;
  }
  info.packet = udp.subspan(kUdpBytes, length - kUdpBytes);
  return true;
}

}  // namespace weft::srd
