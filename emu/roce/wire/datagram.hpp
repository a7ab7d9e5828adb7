// Owns what stands around a transport packet on Ethernet: IPv4 or IPv6, and UDP to port 4791.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "srd/net/address.hpp"

namespace weft::roce::wire {

inline constexpr std::uint16_t kUdpPort = 4791;
inline constexpr std::uint16_t kFirstSourcePort = 0xC000;
inline constexpr std::size_t kEthernetHeader = 14;
inline constexpr std::size_t kLargestIpUdp = 40 + 8;

// What the headers say. IPv4 addresses are mapped (::ffff:a.b.c.d).
struct DatagramHeader {
  srd::Address source;
  srd::Address destination;
  std::uint8_t traffic_class = 0;  // with the two ECN bits
  std::uint8_t hop_limit = 64;
  std::uint16_t source_port = kFirstSourcePort;
  std::uint32_t flow_label = 0;      // IPv6
  std::uint16_t identification = 0;  // IPv4
  std::array<std::byte, 12> link{};  // Ethernet addresses
};

enum class DatagramFault : std::uint8_t {
  none = 0,
  too_short,
  not_ip,
  bad_ip,  // version, options, fragment, length or IPv4 header checksum
  not_udp,
  bad_udp_length,
  other_port,
};

// The parts of a frame, as spans into it.
struct Datagram {
  DatagramHeader header;
  std::span<const std::byte> ip_udp;  // what icrc() asks for
  std::span<const std::byte> packet;  // BTH to pad
  std::uint32_t icrc = 0;             // as it arrived
};

// `frame` must outlive what is found in it.
[[nodiscard]] DatagramFault parse_datagram(std::span<const std::byte> frame, Datagram& datagram);
[[nodiscard]] bool icrc_is_right(const Datagram& datagram);

// The headers alone, as a carrier has found them around a packet for us: their checksum, lengths
// and ports are not looked at. False: they are neither IPv4 nor IPv6.
[[nodiscard]] bool read_envelope(std::span<const std::byte> envelope, DatagramHeader& header);

// Writes the Ethernet, IP and UDP headers for a packet of `packet_size` bytes, ICRC not counted;
// returns their size. Both addresses are of one family.
std::size_t write_datagram_header(const DatagramHeader& header, std::size_t packet_size,
                                  std::span<std::byte, kEthernetHeader + kLargestIpUdp> to);

// The IP header alone (20 or 40 bytes), for the first 40 bytes of a datagram's receive buffer.
std::size_t write_ip_header(const DatagramHeader& header, std::size_t udp_size,
                            std::span<std::byte, 40> to);

[[nodiscard]] bool is_mapped_ipv4(const srd::Address& address);
[[nodiscard]] bool is_multicast(const srd::Address& address);

// The source port that Linux gives a connection: by its flow label, or by the two queue pairs.
[[nodiscard]] std::uint16_t source_port_of(std::uint32_t flow_label, std::uint32_t local_qpn,
                                           std::uint32_t remote_qpn);

}  // namespace weft::roce::wire
