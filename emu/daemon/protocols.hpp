// Owns which protocols weftd tells apart, and what it knows of those that only pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "srd/net/frame_codec.hpp"
#include "srd/wire/srd_codec.hpp"

namespace weft::daemon {

// RoCEv2 is steered to processes by the upper byte of the destination's queue pair number; queue
// pair 1 is everybody's. Its packets name no sender but the address. Nobody here looks at its
// checksum, so none is computed or believed in.
struct RoceSteering {
  static constexpr srd::net::UdpPorts kPorts{
      .destination = 4791, .first_source = 0xC000, .paths = 0x4000};
  static constexpr std::size_t kSteeringBytes = 8;

  [[nodiscard]] static srd::net::Steering steer(std::span<const std::byte> packet) {
    constexpr std::size_t kQpn = 5;  // of InfiniBand's base transport header, 24 bits
    const std::uint32_t place = srd::net::load8(&packet[kQpn]);
    return {.place = place,
            .management = place == 0 && srd::net::load16(&packet[kQpn + 1]) == 1,
            .names_sender = false,
            .sender = {},
            .life = {}};
  }
  [[nodiscard]] static srd::net::PacketFault check(std::span<const std::byte>) {
    return srd::net::PacketFault::none;
  }
  static void seal(std::span<std::byte>) {}
  [[nodiscard]] static std::size_t checked_from(std::span<const std::byte>) { return 0; }
  [[nodiscard]] static bool is_control(std::uint8_t) { return false; }
};

using Protocols = srd::net::CodecList<srd::wire::SrdCodec, RoceSteering>;

}  // namespace weft::daemon
