// Owns the names that the connection manager and its owner share: addresses with ports, paths,
// parameters of connections, events. The numbers are those of the kernel's interface.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emu/roce/wire/mad.hpp"
#include "srd/base/ids.hpp"
#include "srd/base/time.hpp"
#include "srd/net/address.hpp"

namespace weft::roce::cm {

enum class PortSpace : std::uint16_t { ipoib = 0x0002, tcp = 0x0106, udp = 0x0111, ib = 0x013F };

// As the verbs number them; only UC is not for every port space.
enum class Transport : std::uint8_t { rc = 2, uc = 3, ud = 4 };

// IPv4 is mapped into IPv6, as on the wire of connection management. All zero, the mapped one or
// not: any address of that family.
struct SocketAddress {
  srd::Address ip;
  std::uint16_t port = 0;
  bool known = false;

  [[nodiscard]] bool is_v4() const { return ip.is_v4(); }
  [[nodiscard]] bool is_any() const {
    return ip == srd::Address{} || ip == srd::Address::v4(0, 0, 0, 0);
  }
  // The host itself, whichever NIC: ::1, or what host names stand for in /etc/hosts (127.0.0.1,
  // 127.0.1.1). Other addresses of 127/8 are those of emulated NICs.
  [[nodiscard]] bool is_loopback() const {
    constexpr std::size_t kLast = 15;
    srd::Address one{};
    one.bytes[kLast] = std::byte{1};
    return ip == one ||
           (is_v4() && ip.v4_bytes()[0] == std::byte{127} && ip.v4_bytes()[1] == std::byte{0});
  }
};

// A service id, as REQ and SIDR_REQ carry it.
[[nodiscard]] constexpr std::uint64_t service_id(PortSpace space, std::uint16_t port) {
  return std::uint64_t{static_cast<std::uint16_t>(space)} << 16 | port;
}

// A NIC of this process's host.
struct LocalNic {
  std::uint64_t guid = 0;
  std::uint8_t attachment = 0;  // of this process: the upper byte of its communication ids
  std::uint8_t path_mtu = 5;    // 1: 256 ... 5: 4096
  std::uint8_t ack_delay = 15;  // local CA ack delay
  std::uint32_t index = ~0U;    // as NETLINK_RDMA numbers devices; all ones: unknown
};
struct LocalAddress {
  srd::Address address;
  std::uint32_t nic = 0;  // in Config::nics
  std::uint8_t gid_index = 0;
};

struct Config {
  std::vector<LocalNic> nics;
  std::vector<LocalAddress> addresses;
  std::uint64_t seed = 0;
  // What peers and programs can make the manager hold.
  std::uint32_t max_ids = 16384;
  // Messages that the owner has not fetched. Good-byes of ids that have gone are bounded by max_ids
  // instead.
  std::uint32_t max_outgoing = 1024;
  std::uint32_t max_ended = 1024;  // connections that are remembered after their end
};

inline constexpr std::uint32_t kMaxBacklog = 1024;
inline constexpr std::uint16_t kDefaultPkey = 0xFFFF;
inline constexpr std::uint32_t kUdpQkey = 0x01234567;
inline constexpr std::uint32_t kGroupQpn = 0xFFFFFF;

// Of a connection, once its route is known.
struct Path {
  srd::Address source;
  srd::Address destination;
  std::uint32_t flow_label = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint8_t mtu = 5;
  std::uint8_t rate = 0;
  std::uint8_t lifetime = 18;  // 4.096 us * 2^n; what Linux assumes on RoCE
  std::uint8_t gid_index = 0;
};

// As large as the kernel's interface has it; `size` says how much is meant.
struct PrivateData {
  std::array<std::byte, 256> bytes{};
  std::uint8_t size = 0;

  [[nodiscard]] std::span<const std::byte> span() const { return std::span(bytes).first(size); }
};

// What either end says about itself, and what an event says of the other one: there, resources and
// depth have changed places already.
struct ConnectParameters {
  std::uint32_t qpn = 0;
  std::uint32_t qkey = 0;
  PrivateData data;
  bool srq = false;
  bool flow_control = false;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
};

enum class EventKind : std::uint32_t {
  address_resolved = 0,
  address_error = 1,
  route_resolved = 2,
  route_error = 3,
  connect_request = 4,
  connect_response = 5,
  connect_error = 6,
  unreachable = 7,
  rejected = 8,
  established = 9,
  disconnected = 10,
  multicast_join = 12,
  timewait_exit = 15,
};

// Names an id of a Manager until it is destroyed.
using Handle = Id<struct HandleTag, std::uint32_t>;

struct Event {
  EventKind kind = EventKind::address_resolved;
  Handle id;                // of a connect_request: the listening one
  Handle connection;        // of a connect_request: the new one
  std::int32_t status = 0;  // a negative errno, or the reason of a rejection
  bool datagram = false;
  ConnectParameters parameters;
  // What an address handle needs: of an established datagram service, or of a multicast group.
  Path path;
  std::uint32_t group = 0;  // of a multicast_join: the number that it was asked for with
};

// Why a connection is rejected: those of the specification's reasons that are used here.
enum class Reason : std::uint16_t {
  timeout = 4,
  unsupported = 5,
  invalid_service = 8,
  stale_connection = 10,
  invalid_gid = 12,
  consumer = 28,
  vendor_option = 35,
};

enum class SidrStatus : std::uint8_t { success = 0, unsupported = 1, rejected = 2 };

// A message to be sent from queue pair 1 to queue pair 1.
struct Outgoing {
  srd::Address from;  // an address of a NIC of this process
  srd::Address to;
  std::uint8_t traffic_class = 0;
  bool is_last_word = false;  // of an id that has gone: nobody would say it again
  std::array<std::byte, wire::kMadSize> mad{};
};

struct Counters {
  std::uint64_t received = 0;
  std::uint64_t sent = 0;
  std::uint64_t retries = 0;
  std::uint64_t duplicates = 0;
  std::uint64_t malformed = 0;   // no message of connection management
  std::uint64_t unexpected = 0;  // for no id, from the wrong address, or in the wrong state
  std::uint64_t refused = 0;     // requests that were answered by REJ or SIDR_REP with an error
  std::uint64_t no_room = 0;     // requests dropped: backlog or table is full
  std::uint64_t dropped = 0;     // messages of ours that the owner did not fetch in time
};

}  // namespace weft::roce::cm
