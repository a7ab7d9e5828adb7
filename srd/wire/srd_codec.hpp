// Owns SRD's frame codec: what carriers and weftd know of SRD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "srd/net/frame_codec.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd::wire {

// [wire 2.3] The path is the low byte of the source port.
inline constexpr std::uint16_t kFirstSourcePort = 0xF000;
inline constexpr std::uint16_t kDestinationPort = 0xEF00;

// [wire 2.4] Differentiated services code points; the last two are from the pool for local use.
inline constexpr std::uint8_t kDscpData = 0;
inline constexpr std::uint8_t kDscpControl = 47;  // acks and the like: short, and worth a priority
inline constexpr std::uint8_t kDscpTrimmed = 43;  // a switch has cut the payload off

struct SrdCodec {
  static constexpr net::UdpPorts kPorts{.destination = kDestinationPort,
                                        .first_source = kFirstSourcePort,
                                        .paths = static_cast<std::uint16_t>(kMaxPaths)};

  // --- Carriers

  // Short answers go before data. The type is the second byte of the header.
  [[nodiscard]] static std::uint8_t dscp_of(const TxPacket& packet) {
    return dscp_of_type(packet.header[offsetof(CommonHeader, type)]);
  }
  [[nodiscard]] static std::uint8_t dscp_of(std::span<const std::byte> packet, bool trimmed) {
    constexpr std::size_t kType = offsetof(CommonHeader, type);
    return trimmed ? kDscpTrimmed : packet.size() > kType ? dscp_of_type(packet[kType]) : kDscpData;
  }
  [[nodiscard]] static bool is_trimmed(std::uint8_t dscp) { return dscp == kDscpTrimmed; }
  // [wire 3.1]
  [[nodiscard]] static std::optional<AttachmentId> destination_of(const TxPacket& packet) {
    if (packet.header_size < sizeof(CommonHeader)) {
      return std::nullopt;
    }
    return AttachmentId{net::load16(packet.header.data() + kDestinationAttachmentOffset)};
  }
  [[nodiscard]] static bool is_from(std::span<const std::byte> packet, AttachmentId attachment,
                                    Life life) {
    CommonHeader header;
    return load(packet, header) && header.source_attachment.value() == attachment.value() &&
           header.source_life.value() == life.value();
  }

  // --- weftd

  static constexpr std::uint32_t kQpnBits = 8;
  static constexpr std::size_t kSteeringBytes = offsetof(CommonHeader, destination_life);
  static constexpr std::size_t kTrimmedPacket = sizeof(DataHeader);

  [[nodiscard]] static net::Steering steer(std::span<const std::byte> packet) {
    big_uint32_buf_t life;
    std::memcpy(&life, &packet[offsetof(CommonHeader, source_life)], sizeof life);
    return {.known = true,
            .place = net::load16(&packet[kDestinationAttachmentOffset]),
            .management = false,
            .names_sender = true,
            .sender = AttachmentId{net::load16(&packet[offsetof(CommonHeader, source_attachment)])},
            .life = Life{life.value()}};
  }
  [[nodiscard]] static net::PacketFault check(std::span<const std::byte> frame);
  static void seal(std::span<std::byte> frame);
  [[nodiscard]] static std::size_t checked_from(std::span<const std::byte> frame);
  [[nodiscard]] static bool is_control(std::uint8_t dscp) { return dscp == kDscpControl; }
  // [wire 4.9] What a switch does instead of dropping a data packet: cuts its payload off and says
  // so in the envelope.
  [[nodiscard]] static bool may_trim(std::uint8_t dscp, std::size_t packet_size) {
    return dscp == kDscpData && packet_size > kTrimmedPacket;
  }
  [[nodiscard]] static std::size_t trim(std::span<std::byte> frame);

 private:
  [[nodiscard]] static std::uint8_t dscp_of_type(std::byte type) {
    return type >= static_cast<std::byte>(PacketType::ack) ? kDscpControl : kDscpData;
  }
};
static_assert(net::FrameCodec<SrdCodec> && net::SteeringCodec<SrdCodec> && net::Trims<SrdCodec>);

}  // namespace weft::srd::wire
