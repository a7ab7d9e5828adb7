// Owns reading datagrams of management as far as it takes to find the process that each is for, and
// answering, as a kernel, requests for connections that are for none.
#include "emu/daemon/management.hpp"

#include <optional>

#include "emu/roce/wire/mad.hpp"
#include "emu/roce/wire/mad_header.hpp"
#include "emu/roce/wire/mad_owners.hpp"
#include "emu/roce/wire/packet.hpp"
#include "emu/roce/wire/roce_codec.hpp"

namespace weft::daemon {
namespace {

namespace wire = roce::wire;

constexpr unsigned kAttachmentShift = 24;
constexpr std::uint16_t kNoSuchService = 8;      // REJ: invalid service id
constexpr std::uint8_t kServiceUnsupported = 1;  // SIDR_REP

// `packet` from the BTH to the ICRC; its checksum has been verified, or memory carried it. Empty:
// it has no datagram of management.
std::span<const std::byte> mad_of(std::span<const std::byte> packet, wire::Packet& headers) {
  if (packet.size() < wire::kIcrcSize ||
      wire::parse_packet(packet.first(packet.size() - wire::kIcrcSize), 0, headers) !=
          wire::PacketFault::none ||
      headers.payload_size != wire::kMadSize) {
    return {};
  }
  return packet.subspan(headers.header_size, headers.payload_size);
}

std::optional<wire::CmMessage> read(std::span<const std::byte> mad) {
  wire::CmMessage message;
  return wire::parse_cm(mad, message) == wire::MadFault::none ? std::optional(message)
                                                              : std::nullopt;
}

// Of the classes that programs use by umad: an answer is for the agent that has asked, all else for
// who has registered that method.
std::uint32_t place_of(const ServiceOwners& services, const wire::MadHeader& mad) {
  if (mad.base_version != wire::kMadBaseVersion || wire::is_of_subnet(mad)) {
    return 0;
  }
  return wire::is_answer(mad) ? wire::agent_of(mad.transaction) >> wire::kAgentBits
                              : services.owner(wire::method_service(
                                    mad.management_class, mad.class_version, mad.method, mad.oui));
}

// The answer goes back with the transaction and the communication id of the request, so that its
// sender knows which one it ends.
wire::CmMessage refusing(const wire::CmMessage& request) {
  wire::CmMessage answer;
  answer.transaction = request.transaction;
  if (request.kind == wire::CmKind::sidr_request) {
    answer.kind = wire::CmKind::sidr_reply;
    answer.local_id = request.local_id;
    answer.status = kServiceUnsupported;
    answer.service_id = request.service_id;
  } else if (request.kind == wire::CmKind::disconnect_request) {
    answer.kind = wire::CmKind::disconnect_reply;
    answer.local_id = request.remote_id;
    answer.remote_id = request.local_id;
  } else {
    answer.kind = wire::CmKind::reject;
    answer.remote_id = request.local_id;
    answer.reason = kNoSuchService;
  }
  return answer;
}

}  // namespace

ManagementRoute route_management(const ServiceOwners& services, RecentRequests& requests,
                                 const srd::Address& from, std::span<const std::byte> packet) {
  wire::Packet headers;
  const auto mad = mad_of(packet, headers);
  if (mad.empty()) {
    return {};
  }
  if (const auto header = wire::read_mad_header(mad); !wire::is_of_connections(header)) {
    return {.place = place_of(services, header), .refuse = false, .ends = false};
  }
  const auto message = read(mad);
  if (!message) {
    return {};
  }
  switch (message->kind) {
    case wire::CmKind::request:
    case wire::CmKind::sidr_request: {
      const bool foreign = wire::is_method_service(message->service_id);
      const std::uint16_t owner = foreign ? std::uint16_t{0} : services.owner(message->service_id);
      if (owner != 0 && message->kind == wire::CmKind::request) {
        requests.note(from, message->local_id, owner);
      }
      return {.place = owner, .refuse = owner == 0, .ends = false};
    }
    case wire::CmKind::sidr_reply:
      return {.place = message->local_id >> kAttachmentShift, .refuse = false, .ends = false};
    case wire::CmKind::reject:
      if (message->remote_id == 0) {
        return {.place = requests.attachment_of(from, message->local_id),
                .refuse = false,
                .ends = false};
      }
      [[fallthrough]];
    default:
      return {.place = message->remote_id >> kAttachmentShift,
              .refuse = false,
              .ends = message->kind == wire::CmKind::disconnect_request};
  }
}

std::vector<std::byte> answer_for_nobody(std::span<const std::byte> frame) {
  wire::Datagram datagram;
  wire::Packet asked;
  if (wire::parse_datagram(frame, datagram) != wire::DatagramFault::none) {
    return {};
  }
  const std::span<const std::byte> packet{datagram.packet.data(),
                                          datagram.packet.size() + wire::kIcrcSize};
  const auto mad_asked = mad_of(packet, asked);
  const auto request = mad_asked.empty() ? std::nullopt : read(mad_asked);
  if (!request ||
      (request->kind != wire::CmKind::request && request->kind != wire::CmKind::sidr_request &&
       request->kind != wire::CmKind::disconnect_request)) {
    return {};
  }
  wire::Packet headers;
  headers.opcode = wire::opcode_of(wire::Transport::ud, wire::Operation::send_only);
  headers.pkey = asked.pkey;
  headers.destination_qpn = asked.source_qpn;
  headers.qkey = wire::kGsiQkey;
  headers.source_qpn = wire::RoceCodec::kManagementQpn;
  std::array<std::byte, wire::kLargestHeader> header;
  const std::size_t header_size = wire::write_headers(headers, header.data());
  std::array<std::byte, wire::kMadSize> mad;
  wire::write_cm(refusing(*request), mad);

  const auto writer =
      srd::net::EnvelopeWriter::make(datagram.header.destination, wire::RoceCodec::kPorts);
  std::vector<std::byte> answer(srd::net::kEnvelopeSizeV6 + header_size + mad.size() +
                                wire::kIcrcSize);
  const std::size_t size = header_size + mad.size() + wire::kIcrcSize;
  if (!writer || !writer->write(answer.data(), datagram.header.source, srd::PathId{0},
                                srd::Ecn::not_capable, 0, size)) {
    return {};
  }
  answer.resize(writer->size() + size);
  std::byte* const at = answer.data() + writer->size();
  std::copy_n(header.data(), header_size, at);
  std::copy(mad.begin(), mad.end(), at + header_size);
  return answer;
}

}  // namespace weft::daemon
