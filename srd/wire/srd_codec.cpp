// Owns what happens to SRD's frames at the borders of memory, and in full switches.
#include "srd/wire/srd_codec.hpp"

#include "srd/wire/parse.hpp"

namespace weft::srd::wire {
namespace {

std::size_t offset_of(const net::Envelope& envelope, std::span<const std::byte> frame) {
  return static_cast<std::size_t>(envelope.packet().data() - frame.data());
}

}  // namespace

net::PacketFault SrdCodec::check(std::span<const std::byte> frame) {
  const auto envelope = net::Envelope::parse(frame, kPorts);
  if (!envelope.ok()) {
    return net::PacketFault::malformed;
  }
  const auto packet = parse_packet(envelope.packet(), 0, is_trimmed(envelope.dscp()));
  if (packet.reason() != DropReason::none) {
    return net::PacketFault::malformed;
  }
  return verify_checksum(packet, {}, true) == DropReason::none ? net::PacketFault::none
                                                               : net::PacketFault::corrupted;
}

void SrdCodec::seal(std::span<std::byte> frame) {
  const auto envelope = net::Envelope::parse(frame, kPorts);
  if (envelope.ok() && envelope.packet().size() >= kSmallestHeader) {
    wire::seal(frame.subspan(offset_of(envelope, frame), envelope.packet().size()));
  }
}

// The checksum covers the whole packet, if its flag says that there is one, and not the envelope.
std::size_t SrdCodec::checked_from(std::span<const std::byte> frame) {
  constexpr std::size_t kFlags = offsetof(CommonHeader, flags);
  const auto envelope = net::Envelope::parse(frame, kPorts);
  const bool checked = envelope.ok() && envelope.packet().size() > kFlags &&
                       (envelope.packet()[kFlags] & std::byte{kChecksummed}) != std::byte{0};
  return checked ? offset_of(envelope, frame) : 0;
}

std::size_t SrdCodec::trim(std::span<std::byte> frame) {
  const auto envelope = net::Envelope::parse(frame, kPorts);
  return envelope.ok() && may_trim(envelope.dscp(), envelope.packet().size())
             ? net::cut(frame, envelope, kTrimmedPacket, kDscpTrimmed)
             : frame.size();
}

}  // namespace weft::srd::wire
