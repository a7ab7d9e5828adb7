// Owns the envelope of a transport packet: Ethernet II, IPv4 or IPv6, and UDP, as [wire 2]
// specifies them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "srd/base/result.hpp"
#include "srd/net/address.hpp"
#include "srd/net/ip_layout.hpp"

namespace weft::srd::net {

// [wire 2.3] The path is the low byte of the source port.
inline constexpr std::uint16_t kFirstSourcePort = 0xF000;
inline constexpr std::uint16_t kDestinationPort = 0xEF00;
inline constexpr std::uint16_t kPathPorts = 256;

// [wire 2.4] Differentiated services code points; the last two are from the pool for local use.
inline constexpr std::uint8_t kDscpData = 0;
inline constexpr std::uint8_t kDscpControl = 47;  // acks and the like: short, and worth a priority
inline constexpr std::uint8_t kDscpTrimmed = 43;  // a switch has cut the payload off

inline constexpr std::uint8_t kHopLimit = 64;
inline constexpr std::size_t kEnvelopeSizeV4 = kEthernetSize + kIpV4Size + kUdpSize;
inline constexpr std::size_t kEnvelopeSizeV6 = kEthernetSize + kIpV6Size + kUdpSize;
// The largest that the length fields of IP and UDP can express.
inline constexpr std::size_t kLargestPacket = 0xFFFF - kIpV4Size - kUdpSize;

// [wire 2.1] The locally administered Ethernet address that follows from a NIC's address: no NIC
// needs ARP or neighbour discovery.
using MacAddress = std::array<std::byte, 6>;
[[nodiscard]] MacAddress mac_of(const Address& address);

// Writes envelopes for what one NIC sends: a template, patched per packet.
class EnvelopeWriter {
 public:
  [[nodiscard]] static Result<EnvelopeWriter> make(const Address& from);

  [[nodiscard]] std::size_t size() const { return size_; }

  // Fills the first size() bytes of a frame whose packet of `packet_size` bytes follows them.
  // False, and nothing written, if the destination is not of the NIC's address family or no NIC's
  // address, the path is out of range, or the packet is too large.
  [[nodiscard]] bool write(std::byte* frame, const Address& to, PathId path, Ecn ecn,
                           std::uint8_t dscp, std::size_t packet_size) const;

 private:
  explicit EnvelopeWriter(const Address& from);

  std::array<std::byte, kEnvelopeSizeV6> bytes_{};
  std::size_t size_ = 0;
  std::uint32_t constant_sum_ = 0;  // IPv4: of the header words that are the same in every packet
};

// [wire 5.3] Why a frame does not hold a transport packet. The counter of each is "rx_envelope_"
// followed by its name.
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
  [[nodiscard]] static Envelope parse(std::span<const std::byte> frame);

  [[nodiscard]] bool ok() const { return fault_ == EnvelopeFault::none; }
  [[nodiscard]] EnvelopeFault fault() const { return fault_; }

  [[nodiscard]] const Address& source() const { return source_; }
  [[nodiscard]] const Address& destination() const { return destination_; }
  [[nodiscard]] PathId path() const { return PathId{path_}; }
  [[nodiscard]] Ecn ecn() const { return static_cast<Ecn>(traffic_class_ & 3); }
  [[nodiscard]] std::uint8_t dscp() const { return static_cast<std::uint8_t>(traffic_class_ >> 2); }
  [[nodiscard]] bool trimmed() const { return dscp() == kDscpTrimmed; }
  [[nodiscard]] std::uint8_t hop_limit() const { return hop_limit_; }
  // The transport packet.
  [[nodiscard]] std::span<const std::byte> packet() const { return packet_; }

 private:
  [[nodiscard]] EnvelopeFault check(std::span<const std::byte> frame);
  [[nodiscard]] EnvelopeFault check_v4(std::span<const std::byte> ip);
  [[nodiscard]] EnvelopeFault check_v6(std::span<const std::byte> ip);
  [[nodiscard]] EnvelopeFault check_udp(std::span<const std::byte> udp, std::size_t claimed);

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

// [wire 4.9] What a switch does instead of dropping a data packet: cuts the frame down to `keep`
// bytes of the packet and says so in the envelope. Returns the new size of the frame, or the old
// one of a frame that cannot be trimmed: not a transport packet, control, trimmed already, or not
// longer than that.
[[nodiscard]] std::size_t trim(std::span<std::byte> frame, std::size_t keep);
// Whether trim() would cut the frame.
[[nodiscard]] bool can_trim(std::span<const std::byte> frame, std::size_t keep);

}  // namespace weft::srd::net
