// Owns RoCEv2's frame codec: what carriers and weftd know of RoCEv2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "emu/roce/wire/addresses.hpp"
#include "emu/roce/wire/datagram.hpp"
#include "emu/roce/wire/headers.hpp"
#include "emu/roce/wire/opcode.hpp"
#include "srd/net/frame_codec.hpp"

namespace weft::roce::wire {

// The ICRC costs more than all else that happens to a large packet. Inside memory, where no bit
// gets wrong, it is left out: the trailer is zero until weftd seals a frame that leaves memory.
// Receivers in memory do not look at it, as weftd has checked what came in.
struct RoceCodec {
  static constexpr srd::net::UdpPorts kPorts{
      .destination = kUdpPort, .first_source = kFirstSourcePort, .paths = 0x4000, .groups = true};
  // A queue pair's number begins with the attachment of its process.
  static constexpr std::uint32_t kQpnBits = 16;
  static constexpr std::uint32_t kManagementQpn = 1;
  static constexpr std::uint32_t kMulticastQpn = 0xFFFFFF;

  [[nodiscard]] static srd::Address nic_of(const srd::Address& address) {
    return wire::nic_of(address);
  }
  [[nodiscard]] static std::vector<srd::Address> addresses_of(const srd::Address& nic) {
    return wire::addresses_of(nic);
  }

  // --- Carriers

  [[nodiscard]] static std::uint8_t dscp_of(const srd::TxPacket& packet) { return packet.dscp; }
  [[nodiscard]] static std::uint8_t dscp_of(std::span<const std::byte> packet, bool /*trimmed*/) {
    return !packet.empty() && packet[0] == std::byte{kCongestionNotification} ? kNotificationDscp
                                                                              : std::uint8_t{0};
  }
  [[nodiscard]] static std::uint8_t hop_limit_of(const srd::TxPacket& packet) {
    return packet.hop_limit;
  }
  [[nodiscard]] static bool is_trimmed(std::uint8_t /*dscp*/) { return false; }
  [[nodiscard]] static std::optional<srd::AttachmentId> destination_of(
      const srd::TxPacket& packet) {
    if (packet.header_size < sizeof(Bth)) {
      return std::nullopt;
    }
    const std::uint32_t qpn = qpn_at(packet.header.data());
    const auto attachment = static_cast<std::uint16_t>(qpn >> kQpnBits);
    return attachment == 0 || qpn == kMulticastQpn ? std::nullopt
                                                   : std::optional(srd::AttachmentId{attachment});
  }
  // RoCEv2 packets do not name their sender's process or life, so the address is all there is to
  // check.
  [[nodiscard]] static bool is_from(std::span<const std::byte> /*packet*/,
                                    srd::AttachmentId /*attachment*/, srd::Life /*life*/) {
    return true;
  }
  [[nodiscard]] static std::size_t trailer_size(const srd::TxPacket& /*packet*/) {
    return kIcrcSize;
  }
  static void write_trailer(std::byte* to, const srd::TxPacket& /*packet*/) {
    std::memset(to, 0, kIcrcSize);
  }

  // --- weftd

  static constexpr std::size_t kSteeringBytes = offsetof(Bth, ack_request);

  [[nodiscard]] static srd::net::Steering steer(std::span<const std::byte> packet) {
    const std::uint32_t qpn = qpn_at(packet.data());
    return {.known = true,
            .place = qpn >> kQpnBits,
            .management = qpn == kManagementQpn,
            .names_sender = false,
            .sender = {},
            .life = {},
            .group = qpn == kMulticastQpn};
  }
  [[nodiscard]] static srd::net::PacketFault check(std::span<const std::byte> frame);
  static void seal(std::span<std::byte> frame);
  // How much of a frame a receiver in memory checks itself: nothing, since it does not look at the
  // ICRC.
  [[nodiscard]] static std::size_t checked_from(std::span<const std::byte> /*frame*/) { return 0; }
  [[nodiscard]] static bool is_control(std::uint8_t dscp) { return dscp == kNotificationDscp; }

 private:
  [[nodiscard]] static std::uint32_t qpn_at(const std::byte* packet) {
    constexpr std::size_t kQpn = offsetof(Bth, destination_qpn);
    return std::uint32_t{srd::net::load8(packet + kQpn)} << 16 |
           srd::net::load16(packet + kQpn + 1);
  }
};
static_assert(srd::net::FrameCodec<RoceCodec> && srd::net::SteeringCodec<RoceCodec>);
static_assert(srd::net::WritesTrailer<RoceCodec> && srd::net::SetsHopLimit<RoceCodec> &&
              srd::net::HasAliases<RoceCodec>);

}  // namespace weft::roce::wire
