// Owns reading sequence numbers off packets.
#include "emu/cli/perf/watched_io.hpp"

#include "srd/wire/srd_header.hpp"

namespace weft::cli {

std::span<const srd::RxPacket> WatchedIo::receive() {
  const auto packets = below_->receive();
  for (const srd::RxPacket& packet : packets) {
    srd::wire::DataHeader header;
    if (!srd::wire::load(packet.bytes, header) ||
        header.common.type > static_cast<std::uint8_t>(srd::wire::PacketType::read_response)) {
      continue;
    }
    watch_->paths.set(packet.path.value() % 256U);
    const std::uint32_t psn = header.psn.value();
    if (!watch_->seen || psn - watch_->highest_psn < 0x8000'0000U) {
      watch_->highest_psn = psn;
      watch_->seen = true;
    } else if (header.common.attempt == 0) {
      ++watch_->out_of_order;
    }
  }
  return packets;
}

}  // namespace weft::cli
