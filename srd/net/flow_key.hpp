// Owns the quick look at any frame: which addresses it names as its ends, and what tells its flow
// from others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "srd/net/address.hpp"
#include "srd/net/ip_layout.hpp"

namespace weft::srd::net {

// Takes headers at their word, unlike Envelope, which also checks them. The frame must outlive it.
class FlowKey {
 public:
  [[nodiscard]] static FlowKey parse(std::span<const std::byte> frame) {
    FlowKey key;
    key.frame_ = frame;
    if (frame.size() >= kEthernetSize) {
      key.read_type(load16(&frame[kEtherType]));
    }
    return key;
  }

  // UDP directly behind an IP header without options or extensions: the calls below may be made.
  [[nodiscard]] bool is_udp() const { return udp_ != 0; }
  [[nodiscard]] Address source() const { return address(v4_ ? kV4Source : kV6Source); }
  [[nodiscard]] Address destination() const {
    return address(v4_ ? kV4Destination : kV6Destination);
  }
  [[nodiscard]] std::uint16_t destination_port() const {
    return load16(&frame_[udp_ + kUdpDestinationPort]);
  }
  // Where what UDP carries begins.
  [[nodiscard]] std::size_t payload_offset() const { return udp_ + kUdpSize; }
  // What UDP carries, and whatever may lie behind it.
  [[nodiscard]] std::span<const std::byte> payload() const {
    return frame_.subspan(payload_offset());
  }
  // The bytes that were read.
  [[nodiscard]] std::span<const std::byte> frame() const { return frame_; }

  // The address that an IP packet of any kind, or an ARP message, claims to come from.
  [[nodiscard]] std::optional<Address> claimed_source() const;
  // Of everything that ECMP looks at: the IP addresses and the ports, or else the Ethernet
  // addresses. The frame has an Ethernet header.
  [[nodiscard]] std::uint32_t hash() const;

 private:
  void read_type(std::uint16_t type) {
    type_ = type;
    v4_ = type == kEtherTypeV4;
    const std::byte* const ip = frame_.data() + kEthernetSize;
    const std::size_t rest = frame_.size() - kEthernetSize;
    if (v4_) {
      const bool udp =
          rest >= kIpV4Size + kUdpSize && load8(ip) == kPlainV4 && load8(ip + kV4Protocol) == kUdp;
      udp_ = udp ? kEthernetSize + kIpV4Size : 0;
    } else if (type == kEtherTypeV6) {
      const bool udp = rest >= kIpV6Size + kUdpSize && load8(ip + kV6NextHeader) == kUdp;
      udp_ = udp ? kEthernetSize + kIpV6Size : 0;
    }
  }
  // At that offset of the IP header.
  [[nodiscard]] Address address(std::size_t offset) const {
    const std::byte* const at = frame_.data() + kEthernetSize + offset;
    if (v4_) {
      return Address::v4(at);
    }
    Address address;
    std::memcpy(address.bytes.data(), at, address.bytes.size());
    return address;
  }

  std::span<const std::byte> frame_;
  std::size_t udp_ = 0;  // where its header begins
  std::uint16_t type_ = 0;
  bool v4_ = false;
};

}  // namespace weft::srd::net
