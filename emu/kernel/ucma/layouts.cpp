// Owns where the fields are, and which of them are big endian.
//
// Socket addresses and path records are big endian, as they are on a network; all other words of
// the interface are the machine's own. A path record comes in two forms: as a struct with a member
// for each field (QUERY_ROUTE) and as the 64 bytes of the wire (QUERY with the path option).
#include "emu/kernel/ucma/layouts.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weft::kernel {
namespace {

namespace cm = roce::cm;
namespace ucma = abi::ucma;

constexpr std::size_t kPortAt = 2;
constexpr std::size_t kIpv4At = 4;
constexpr std::size_t kIpv6At = 8;
constexpr std::uint8_t kExactly = 2;  // a selector of path records

template <class T>
T swapped(T value) {
  auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  if constexpr (std::endian::native == std::endian::little) {
    std::ranges::reverse(bytes);
  }
  return std::bit_cast<T>(bytes);
}

template <class T>
void put(std::span<std::byte> to, std::size_t at, T value) {
  std::memcpy(&to[at], &value, sizeof value);
}

std::uint16_t family_of(std::span<const std::byte> socket) {
  std::uint16_t family = 0;
  std::memcpy(&family, socket.data(), sizeof family);
  return family;
}

// Always with a global route, and no LID: on Ethernet there is nothing else.
void put_address(ucma::AhAttributes& to, const cm::Path& path) {
  to.dgid = path.destination.bytes;
  to.flow_label = path.flow_label;
  to.sgid_index = path.gid_index;
  to.hop_limit = path.hop_limit;
  to.traffic_class = path.traffic_class;
  to.is_global = 1;
  to.port_num = 1;
}

}  // namespace

std::uint64_t big_endian(std::uint64_t value) { return swapped(value); }
std::uint32_t big_endian(std::uint32_t value) { return swapped(value); }
std::uint16_t big_endian(std::uint16_t value) { return swapped(value); }

std::size_t socket_size(std::span<const std::byte> socket) {
  switch (family_of(socket)) {
    case ucma::kIpv4:
      return ucma::kIpv4Size;
    case ucma::kIpv6:
      return sizeof(ucma::SocketIn6);
    case ucma::kInfiniBand:
      return ucma::kInfiniBandSize;
    default:
      return 0;
  }
}

std::optional<cm::SocketAddress> read_socket(std::span<const std::byte> socket) {
  cm::SocketAddress address;
  std::uint16_t port = 0;
  std::memcpy(&port, &socket[kPortAt], sizeof port);
  address.port = big_endian(port);
  address.known = true;
  switch (family_of(socket)) {
    case ucma::kIpv4:
      address.ip = srd::Address::v4(&socket[kIpv4At]);
      return address;
    case ucma::kIpv6:
      std::memcpy(&address.ip, &socket[kIpv6At], sizeof address.ip);
      return address;
    default:
      return std::nullopt;
  }
}

std::size_t write_socket(const cm::SocketAddress& address, std::span<std::byte> to) {
  if (!address.known) {
    return 0;
  }
  put(to, kPortAt, big_endian(address.port));
  if (address.is_v4()) {
    put(to, 0, ucma::kIpv4);
    std::ranges::copy(address.ip.v4_bytes(), &to[kIpv4At]);
    return ucma::kIpv4Size;
  }
  put(to, 0, ucma::kIpv6);
  put(to, kIpv6At, address.ip);
  return sizeof(ucma::SocketIn6);
}

// Addresses and lengths of the program's are bounded by their types: private_data_len has 8 bits,
// the array 256 bytes.
cm::ConnectParameters read_parameters(const ucma::ConnParam& from) {
  cm::ConnectParameters to;
  to.qpn = from.qp_num;
  to.data.bytes = from.private_data;
  to.data.size = from.private_data_len;
  to.srq = from.srq != 0;
  to.flow_control = from.flow_control != 0;
  to.responder_resources = from.responder_resources;
  to.initiator_depth = from.initiator_depth;
  to.retry_count = from.retry_count;
  to.rnr_retry_count = from.rnr_retry_count;
  return to;  // the Q_Key counts for InfiniBand's addresses only
}

ucma::EventReply event_reply(const cm::Event& event) {
  ucma::EventReply reply{};
  reply.event = static_cast<std::uint32_t>(event.kind);
  reply.status = static_cast<std::uint32_t>(event.status);
  const cm::ConnectParameters& from = event.parameters;
  if (event.datagram) {
    ucma::UdParam param{};
    param.qp_num = from.qpn;
    param.qkey = from.qkey;
    param.private_data = from.data.bytes;
    param.private_data_len = from.data.size;
    // With these events the program learns where to send.
    if (event.kind == cm::EventKind::established || event.kind == cm::EventKind::multicast_join) {
      put_address(param.ah, event.path);
    }
    std::memcpy(reply.param.data(), &param, sizeof param);
    return reply;
  }
  ucma::ConnParam param{};
  param.qp_num = from.qpn;
  param.private_data = from.data.bytes;
  param.private_data_len = from.data.size;
  param.srq = from.srq ? 1 : 0;
  param.responder_resources = from.responder_resources;
  param.initiator_depth = from.initiator_depth;
  param.flow_control = from.flow_control ? 1 : 0;
  param.retry_count = from.retry_count;
  param.rnr_retry_count = from.rnr_retry_count;
  std::memcpy(reply.param.data(), &param, sizeof param);
  return reply;
}

ucma::QpAttributes qp_attributes(const cm::QpSettings& settings) {
  ucma::QpAttributes to{};
  to.mask = settings.mask;
  to.qp_state = settings.state;
  to.path_mtu = settings.path_mtu;
  to.qkey = settings.qkey;
  to.rq_psn = settings.rq_psn;
  to.sq_psn = settings.sq_psn;
  to.dest_qp_num = settings.destination_qpn;
  to.access_flags = settings.access;
  if ((settings.mask & cm::kMaskAddress) != 0) {
    put_address(to.ah, settings.path);
  }
  to.max_rd_atomic = settings.max_reads;
  to.max_dest_rd_atomic = settings.max_destination_reads;
  to.port_num = 1;
  to.timeout = settings.timeout;
  to.retry_cnt = settings.retry_count;
  to.rnr_retry = settings.rnr_retry;
  return to;
}

ucma::PathRecord path_record(const cm::Connection& id) {
  ucma::PathRecord record{};
  record.pkey = big_endian(cm::kDefaultPkey);
  if (!id.has_path) {
    record.dgid = id.destination.ip.bytes;
    record.sgid = id.binding.address.ip.bytes;
    return record;
  }
  record.dgid = id.path.destination.bytes;
  record.sgid = id.path.source.bytes;
  record.flow_label = big_endian(id.path.flow_label);
  record.reversible = 1;
  record.mtu = id.path.mtu;
  record.hop_limit = id.path.hop_limit;
  record.traffic_class = id.path.traffic_class;
  record.mtu_selector = record.rate_selector = record.packet_life_time_selector = kExactly;
  record.rate = id.path.rate;
  record.packet_life_time = id.path.lifetime;
  return record;
}

ucma::PathData path_data(const cm::Connection& id) {
  constexpr std::uint8_t kReversible = 0x80;
  constexpr unsigned kSelectorShift = 6;
  const auto selected = [](std::uint8_t value) {
    return static_cast<std::uint8_t>(kExactly << kSelectorShift | value);
  };
  ucma::PathData data{};
  data.flags = ucma::kPathFlags;
  const std::span<std::byte> to = data.record;
  put(to, 8, id.path.destination);
  put(to, 24, id.path.source);
  put(to, 44, big_endian(id.path.flow_label << 8 | id.path.hop_limit));
  put(to, 48, id.path.traffic_class);
  put(to, 49, kReversible);
  put(to, 50, big_endian(cm::kDefaultPkey));
  put(to, 54, selected(id.path.mtu));
  put(to, 55, selected(id.path.rate));
  put(to, 56, selected(id.path.lifetime));
  return data;
}

// sockaddr_ib: family, P_Key, flow information, address, service id, mask, scope.
ucma::SocketStorage gid_socket(const cm::Connection& id, bool source) {
  const cm::SocketAddress& address = source ? id.binding.address : id.destination;
  ucma::SocketStorage storage{};
  put(storage, 0, ucma::kInfiniBand);
  put(storage, 2, big_endian(cm::kDefaultPkey));
  put(storage, 8, address.ip);
  put(storage, 24, big_endian(cm::service_id(id.binding.space, address.port)));
  return storage;
}

}  // namespace weft::kernel
