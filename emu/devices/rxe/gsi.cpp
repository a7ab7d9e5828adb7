// Owns the headers and the checks of the datagrams of queue pair 1.
#include "emu/devices/rxe/gsi.hpp"

#include <algorithm>
#include <array>

#include "emu/roce/wire/mad.hpp"
#include "emu/roce/wire/mad_header.hpp"
#include "emu/roce/wire/packet.hpp"
#include "emu/roce/wire/roce_codec.hpp"

namespace weft::devices::rxe {
namespace {

namespace wire = roce::wire;

static_assert(kernel::kManagementBytes == wire::kMadSize);
static_assert(wire::kLargestHeader + wire::kMadSize <= srd::TxPacket::kHeaderCapacity);

}  // namespace

bool Gsi::take(TimePoint now, const srd::RxPacket& packet, const wire::DatagramHeader& outer) {
  wire::Packet headers;
  if (wire::parse_packet(packet.bytes, packet.more.size(), headers) != wire::PacketFault::none ||
      headers.destination_qpn != wire::RoceCodec::kManagementQpn) {
    return false;
  }
  // Dropped without an answer, as a NIC drops datagrams with a wrong Q_Key: true, since it was for
  // us.
  if (headers.qkey != wire::kGsiQkey || headers.payload_size != wire::kMadSize) {
    return true;
  }
  std::array<std::byte, wire::kMadSize> message;
  const auto front = packet.bytes.subspan(headers.header_size);
  const std::size_t first = std::min(front.size(), message.size());
  std::copy_n(front.begin(), first, message.begin());
  std::copy_n(packet.more.begin(), message.size() - first,
              message.begin() + static_cast<std::ptrdiff_t>(first));
  const wire::MadHeader mad = wire::read_mad_header(message);
  kernel::ManagementAgent* const agent = wire::is_of_connections(mad) ? agent_ : other_agent_;
  if (agent != nullptr) {
    agent->on_message(now, {.from = packet.from,
                            .to = outer.destination,
                            .from_qpn = headers.source_qpn,
                            .traffic_class = outer.traffic_class,
                            .flow_label = outer.flow_label,
                            .message = message});
  }
  return true;
}

void Gsi::on_timeout(TimePoint now) {
  for (kernel::ManagementAgent* const agent : {agent_, other_agent_}) {
    if (next_timeout_of(agent) <= now) {
      agent->on_timeout(now);
    }
  }
}

bool Gsi::next_transmit(TimePoint now, srd::TxPacket& out) {
  for (kernel::ManagementAgent* const agent : {agent_, other_agent_}) {
    kernel::ManagementMessage message;
    if (next_timeout_of(agent) <= now && agent->next_message(message)) {
      write(message, out);
      return true;
    }
  }
  return false;
}

// The message stands behind the headers in the packet's own memory: no memory has to be lent until
// it has left.
void Gsi::write(const kernel::ManagementMessage& message, srd::TxPacket& out) {
  wire::Packet headers;
  headers.opcode = wire::opcode_of(wire::Transport::ud, wire::Operation::send_only);
  headers.destination_qpn = message.to_qpn;
  headers.psn = next_psn_;
  headers.qkey = wire::kGsiQkey;
  headers.source_qpn = wire::RoceCodec::kManagementQpn;
  next_psn_ = (next_psn_ + 1) & wire::kMask24;
  const std::size_t size = wire::write_headers(headers, out.header.data());
  std::ranges::copy(message.bytes, out.header.begin() + static_cast<std::ptrdiff_t>(size));
  out.to = message.to;
  const auto own = std::ranges::find(config_.addresses, message.from);
  out.source = static_cast<std::uint8_t>(own - config_.addresses.begin() + 1);  // unknown: none
  out.path = srd::PathId{0};
  out.ecn = srd::Ecn::not_capable;
  out.dscp = static_cast<std::uint8_t>(message.traffic_class >> 2);
  out.hop_limit = message.hop_limit;
  out.header_size = static_cast<std::uint16_t>(size + message.bytes.size());
  out.payload = {};
}

kernel::ManagementPort::Facts Gsi::facts() const {
  constexpr std::size_t kInterfaceId = 8;  // where that half of a GID begins
  constexpr std::uint8_t kAckDelay = 15;   // 4.096 us * 2^n
  Facts facts;
  const srd::Address& first = config_.addresses.front();
  for (std::size_t i = kInterfaceId; i < first.bytes.size(); ++i) {
    facts.guid = facts.guid << 8 | std::to_integer<std::uint64_t>(first.bytes[i]);
  }
  // The upper bits of each queue pair number of this process. Communication ids begin with it, too:
  // by that weftd finds the process that a message belongs to.
  facts.attachment = static_cast<std::uint8_t>(config_.first_qpn >> wire::RoceCodec::kQpnBits);
  facts.path_mtu = config_.max_path_mtu;
  facts.ack_delay = kAckDelay;
  facts.addresses = config_.addresses;
  return facts;
}

}  // namespace weft::devices::rxe
