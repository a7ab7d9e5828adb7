// Owns reading sequence numbers off packets.
#include "emu/cli/perf/watched_io.hpp"

#include "srd/wire/srd_header.hpp"

namespace weft::cli {

std::span<const srd::RxPacket> WatchedIo::receive() {
  const auto packets = below_->receive();
  for (const srd::RxPacket& packet : packets) {
    srd::wire::DataHeader header;
    // Only what carries a part of a message has a sequence number in this place.
    if (!srd::wire::load(packet.bytes, header) ||
        header.common.type > static_cast<std::uint8_t>(srd::wire::PacketType::read_response)) {
      continue;
    }
    watch_->paths.set(packet.path.value() % 256U);
    const std::uint32_t psn = header.psn.value();
    // Sequence numbers wrap: the difference tells which of two is the later one.
    if (!watch_->seen || psn - watch_->highest_psn < 0x8000'0000U) {
      watch_->highest_psn = psn;
      watch_->seen = true;
      // A packet that was sent again is late anyhow, whatever the network has done.
    } else if (header.common.attempt == 0) {
      ++watch_->out_of_order;
    }
  }
  return packets;
}

}  // namespace weft::cli
