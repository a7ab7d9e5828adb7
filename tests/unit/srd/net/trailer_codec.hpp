// Owns a second protocol for tests: other ports than SRD's, a route key of its own, and a checksum
// behind the payload.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "srd/net/crc32c.hpp"
#include "srd/net/frame_codec.hpp"

namespace weft::srd::net::test {

// A header of 8 bytes: kind, number of the destination's queue pair (24 bits), 4 bytes of anything.
// Then the payload, padded to a multiple of 4, and the CRC32C of all that.
struct TrailerCodec {
  static constexpr UdpPorts kPorts{.destination = 4242, .first_source = 0xC000, .paths = 0x4000};
  // A queue pair's number has its attachment in the upper bits and 16 of its own below; number 1 is
  // for management and belongs to no attachment.
  static constexpr std::uint32_t kQpnBits = 16;
  static constexpr std::size_t kHeader = 8;
  static constexpr std::size_t kCheck = 4;
  static constexpr std::byte kAnswer{1};
  static constexpr std::uint8_t kAnswerDscp = 48;
  static constexpr std::uint32_t kManagement = 1;

  [[nodiscard]] static std::uint8_t dscp_of(const TxPacket& packet) {
    return packet.header[0] == kAnswer ? kAnswerDscp : 0;
  }
  [[nodiscard]] static std::uint8_t dscp_of(std::span<const std::byte> packet, bool) {
    return packet[0] == kAnswer ? kAnswerDscp : 0;
  }
  [[nodiscard]] static bool is_trimmed(std::uint8_t) { return false; }
  [[nodiscard]] static std::optional<AttachmentId> destination_of(const TxPacket& packet) {
    const std::uint32_t qpn = qpn_at(packet.header.data());
    return qpn == kManagement ? std::nullopt
                              : std::optional(AttachmentId{static_cast<std::uint16_t>(qpn >> 16)});
  }
  [[nodiscard]] static bool is_from(std::span<const std::byte>, AttachmentId, Life) { return true; }

  [[nodiscard]] static std::size_t trailer_size(const TxPacket& packet) {
    return (4 - packet.payload_size() % 4) % 4 + kCheck;
  }
  // Padding and room for the checksum, which seal() computes over the whole frame.
  static void write_trailer(std::byte* to, const TxPacket& packet) {
    std::memset(to, 0, trailer_size(packet));
  }

  static constexpr std::size_t kSteeringBytes = 4;
  [[nodiscard]] static Steering steer(std::span<const std::byte> packet) {
    const std::uint32_t qpn = qpn_at(packet.data());
    return {.known = true,
            .place = qpn >> 16,
            .management = qpn == kManagement,
            .names_sender = false,
            .sender = {},
            .life = {}};
  }
  [[nodiscard]] static PacketFault check(std::span<const std::byte> frame) {
    const auto envelope = Envelope::parse(frame, kPorts);
    if (!envelope.ok() || envelope.packet().size() < kHeader + kCheck) {
      return PacketFault::malformed;
    }
    const auto packet = envelope.packet();
    const std::uint32_t sum = crc32c(0, packet.first(packet.size() - kCheck));
    return std::memcmp(packet.last(kCheck).data(), &sum, kCheck) == 0 ? PacketFault::none
                                                                      : PacketFault::corrupted;
  }
  static void seal(std::span<std::byte> frame) {
    const auto envelope = Envelope::parse(frame, kPorts);
    if (envelope.ok() && envelope.packet().size() >= kHeader + kCheck) {
      const auto packet = envelope.packet();
      const std::uint32_t sum = crc32c(0, packet.first(packet.size() - kCheck));
      const auto end = static_cast<std::size_t>(packet.data() - frame.data()) + packet.size();
      std::memcpy(&frame[end - kCheck], &sum, kCheck);
    }
  }
  [[nodiscard]] static std::size_t checked_from(std::span<const std::byte> frame) {
    const auto envelope = Envelope::parse(frame, kPorts);
    return envelope.ok() ? static_cast<std::size_t>(envelope.packet().data() - frame.data()) : 0;
  }
  [[nodiscard]] static bool is_control(std::uint8_t dscp) { return dscp == kAnswerDscp; }

 private:
  [[nodiscard]] static std::uint32_t qpn_at(const std::byte* header) {
    return static_cast<std::uint32_t>(load8(header + 1)) << 16 | load16(header + 2);
  }
};
static_assert(FrameCodec<TrailerCodec> && SteeringCodec<TrailerCodec>);
static_assert(WritesTrailer<TrailerCodec> && !Trims<TrailerCodec>);

}  // namespace weft::srd::net::test
