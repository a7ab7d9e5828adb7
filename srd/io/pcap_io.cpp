// Owns how packets become frames of a capture file.
#include "srd/io/pcap_io.hpp"

#include <array>

namespace weft::srd {
namespace {

using Pieces = std::array<std::span<const std::byte>, 4>;

}  // namespace

Result<std::shared_ptr<PacketCapture>> PacketCapture::create(const std::string& path,
                                                             const Address& own,
                                                             const CaptureFormat& format) {
  const auto envelope = net::EnvelopeWriter::make(own, format.ports);
  if (!envelope) {
    return tl::unexpected(envelope.error());
  }
  auto file = PcapngWriter::create(path, "weft");
  if (!file) {
    return tl::unexpected(file.error());
  }
  return std::make_shared<PacketCapture>(std::move(*file), *envelope, own, format);
}

void PacketCapture::sent(const TxPacket& packet, std::string_view comment) {
  std::array<std::byte, net::kEnvelopeSizeV6> envelope;
  const auto header = std::span(packet.header).first(packet.header_size);
  if (!envelope_.write(envelope.data(), packet.to, packet.path, packet.ecn,
                       format_.dscp_of(header, false), packet.size())) {
    return;
  }
  const Pieces pieces = {std::span<const std::byte>(envelope.data(), envelope_.size()), header,
                         packet.payload[0], packet.payload[1]};
  file_.write(wall_clock_now(), PcapngWriter::Direction::outbound, pieces, comment);
}

void PacketCapture::received(const RxPacket& packet) {
  if (const auto seen = packet.envelope(); !seen.empty()) {
    write_inbound({seen, packet.bytes, packet.more});
    return;
  }
  std::array<std::byte, net::kEnvelopeSizeV6> envelope;
  const auto from = net::EnvelopeWriter::make(packet.from, format_.ports);
  if (!from || !from->write(envelope.data(), own_, packet.path, packet.ecn,
                            format_.dscp_of(packet.bytes, packet.trimmed),
                            packet.bytes.size() + packet.more.size())) {
    return;
  }
  write_inbound(
      {std::span<const std::byte>(envelope.data(), from->size()), packet.bytes, packet.more});
}

void PacketCapture::write_inbound(const std::array<std::span<const std::byte>, 3>& pieces) {
  file_.write(wall_clock_now(), PcapngWriter::Direction::inbound, pieces);
}

std::span<const RxPacket> PcapIo::receive() {
  const auto packets = below_->receive();
  for (const RxPacket& packet : packets) {
    capture_->received(packet);
  }
  return packets;
}

std::size_t PcapIo::transmit(std::span<const TxPacket> packets) {
  const std::size_t taken = below_->transmit(packets);
  for (const TxPacket& packet : packets.first(taken)) {
    capture_->sent(packet);
  }
  return taken;
}

bool PcapIo::arm() {
  // About to sleep: there is time to write, and a reader sees all packets so far.
  capture_->flush();
  return below_->arm();
}

}  // namespace weft::srd
