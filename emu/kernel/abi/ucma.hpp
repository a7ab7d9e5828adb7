// Owns the numbers and layouts of the kernel's interface of connection management, ABI version 4:
// what is written to /dev/infiniband/rdma_cm. Members have the kernel's names.
//
// librdmacm was compiled against these layouts, so their sizes are checked and nothing here may be
// changed. A library older than a member leaves the struct's end out, a newer one may send more:
// hence the kLeast... sizes. `response` is the address at which the program wants the answer, `uid`
// what the program calls the id in its events.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::kernel::abi::ucma {

inline constexpr unsigned kAbiVersion = 4;

// The numbers of the kernel; get_option exists there only by name.
enum class Command : std::uint32_t {
  create_id = 0,
  destroy_id = 1,
  bind_ip = 2,
  resolve_ip = 3,
  resolve_route = 4,
  query_route = 5,
  connect = 6,
  listen = 7,
  accept = 8,
  reject = 9,
  disconnect = 10,
  init_qp_attr = 11,
  get_event = 12,
  get_option = 13,
  set_option = 14,
  notify = 15,
  join_ip_multicast = 16,
  leave_multicast = 17,
  migrate_id = 18,
  query = 19,
  bind = 20,
  resolve_addr = 21,
  join_multicast = 22,
};

// The sizes are those of what follows, and of the room for the reply.
struct Header {
  std::uint32_t command;
  std::uint16_t in;
  std::uint16_t out;
};
static_assert(sizeof(Header) == 8);

using SocketIn6 = std::array<std::byte, 28>;       // sockaddr_in6, or a shorter sockaddr_in
using SocketStorage = std::array<std::byte, 128>;  // sockaddr_storage
inline constexpr std::uint16_t kIpv4 = 2;          // AF_INET
inline constexpr std::uint16_t kIpv6 = 10;         // AF_INET6
inline constexpr std::uint16_t kInfiniBand = 27;   // AF_IB
inline constexpr std::size_t kIpv4Size = 16;       // bytes of such a socket address
inline constexpr std::size_t kInfiniBandSize = 48;

struct CreateId {
  std::uint64_t uid;
  std::uint64_t response;
  std::uint16_t port_space;
  std::uint8_t qp_type;
  std::array<std::uint8_t, 5> reserved;
};
static_assert(sizeof(CreateId) == 24);

// The answer to CREATE_ID and to both kinds of JOIN.
struct IdReply {
  std::uint32_t id;
};
// How many events of the id the program has fetched: the library waits until it has handled as
// many, before it frees what they point to.
struct EventsReply {
  std::uint32_t events_reported;
};

struct DestroyId {
  std::uint64_t response;
  std::uint32_t id;
  std::uint32_t reserved;
};
static_assert(sizeof(DestroyId) == 16);

// IPv6 at the most; BIND below takes any kind of address, with its length. The same holds for the
// other pairs of old and new commands: RESOLVE_IP and RESOLVE_ADDR, JOIN_IP_MULTICAST and
// JOIN_MULTICAST.
struct BindIp {
  std::uint64_t response;
  SocketIn6 address;
  std::uint32_t id;
};
static_assert(sizeof(BindIp) == 40 && offsetof(BindIp, id) == 36);

struct Bind {
  std::uint32_t id;
  std::uint16_t address_size;
  std::uint16_t reserved;
  SocketStorage address;
};
static_assert(sizeof(Bind) == 136);

// Without a source (family 0) the kernel chooses one.
struct ResolveIp {
  SocketIn6 source;
  SocketIn6 destination;
  std::uint32_t id;
  std::uint32_t timeout_ms;
};
static_assert(sizeof(ResolveIp) == 64);

struct ResolveAddr {
  std::uint32_t id;
  std::uint32_t timeout_ms;
  std::uint16_t source_size;
  std::uint16_t destination_size;
  std::uint32_t reserved;
  SocketStorage source;
  SocketStorage destination;
};
static_assert(sizeof(ResolveAddr) == 272);

// The path to the destination, once the address is resolved.
struct ResolveRoute {
  std::uint32_t id;
  std::uint32_t timeout_ms;
};

// What QUERY asks for: IP addresses, the path, or GIDs in the form of InfiniBand's socket
// addresses.
inline constexpr std::uint32_t kQueryAddr = 0;
inline constexpr std::uint32_t kQueryPath = 1;
inline constexpr std::uint32_t kQueryGid = 2;
struct Query {
  std::uint64_t response;
  std::uint32_t id;
  std::uint32_t option;
};
static_assert(sizeof(Query) == 16);

// Big endian where a path record is.
struct PathRecord {
  std::array<std::byte, 16> dgid;
  std::array<std::byte, 16> sgid;
  std::uint16_t dlid;
  std::uint16_t slid;
  std::uint32_t raw_traffic;
  std::uint32_t flow_label;
  std::uint32_t reversible;
  std::uint32_t mtu;
  std::uint16_t pkey;
  std::uint8_t hop_limit;
  std::uint8_t traffic_class;
  std::uint8_t numb_path;
  std::uint8_t sl;
  std::uint8_t mtu_selector;
  std::uint8_t rate_selector;
  std::uint8_t rate;
  std::uint8_t packet_life_time_selector;
  std::uint8_t packet_life_time;
  std::uint8_t preference;
};
static_assert(sizeof(PathRecord) == 64);

// The answer to QUERY_ROUTE. The second path is for InfiniBand's failover and stays empty.
struct QueryRouteReply {
  std::uint64_t node_guid;
  std::array<PathRecord, 2> route;
  SocketIn6 source;
  SocketIn6 destination;
  std::uint32_t num_paths;
  std::uint8_t port_num;
  std::array<std::uint8_t, 3> reserved;
  std::uint32_t ibdev_index;
  std::uint32_t reserved1;
};
static_assert(sizeof(QueryRouteReply) == 208 && offsetof(QueryRouteReply, num_paths) == 192 &&
              offsetof(QueryRouteReply, ibdev_index) == 200);

struct QueryAddrReply {
  std::uint64_t node_guid;
  std::uint8_t port_num;
  std::uint8_t reserved;
  std::uint16_t pkey;
  std::uint16_t source_size;
  std::uint16_t destination_size;
  SocketStorage source;
  SocketStorage destination;
  std::uint32_t ibdev_index;
  std::uint32_t reserved1;
};
static_assert(sizeof(QueryAddrReply) == 280 && offsetof(QueryAddrReply, source) == 16);

inline constexpr std::uint32_t kPathFlags = 1 | 2 | (8 | 32);  // GMP, primary, both directions
struct PathData {
  std::uint32_t flags;
  std::uint32_t reserved;
  std::array<std::byte, 64> record;  // as on InfiniBand's wire
};
struct QueryPathReply {
  std::uint32_t num_paths;
  std::uint32_t reserved;
  PathData path;
};
static_assert(sizeof(QueryPathReply) == 80);
inline constexpr std::size_t kLeastQueryPath = 8;  // without a path

// What one side of a connection says about itself. `valid` is 0 where the program gave nothing.
struct ConnParam {
  std::uint32_t qp_num;
  std::uint32_t qkey;
  std::array<std::byte, 256> private_data;
  std::uint8_t private_data_len;
  std::uint8_t srq;
  std::uint8_t responder_resources;
  std::uint8_t initiator_depth;
  std::uint8_t flow_control;
  std::uint8_t retry_count;
  std::uint8_t rnr_retry_count;
  std::uint8_t valid;
};
static_assert(sizeof(ConnParam) == 272);

// Where datagrams go, or a queue pair's packets.
struct AhAttributes {
  std::array<std::byte, 16> dgid;
  std::uint32_t flow_label;
  std::uint8_t sgid_index;
  std::uint8_t hop_limit;
  std::uint8_t traffic_class;
  std::uint8_t reserved;
  std::uint16_t dlid;
  std::uint8_t sl;
  std::uint8_t src_path_bits;
  std::uint8_t static_rate;
  std::uint8_t is_global;
  std::uint8_t port_num;
  std::uint8_t reserved2;
};
static_assert(sizeof(AhAttributes) == 32);

// What an event of a datagram id has in the place of ConnParam.
struct UdParam {
  std::uint32_t qp_num;
  std::uint32_t qkey;
  AhAttributes ah;
  std::array<std::byte, 256> private_data;
  std::uint8_t private_data_len;
  std::array<std::uint8_t, 7> reserved;
};
static_assert(sizeof(UdParam) == 304);

// Enhanced connection establishment, which no emulated device has. Libraries from before Linux 5.10
// leave these last eight bytes out.
struct Ece {
  std::uint32_t vendor_id;
  std::uint32_t attr_mod;
};

struct Connect {
  ConnParam param;
  std::uint32_t id;
  std::uint32_t reserved;
  Ece ece;
};
static_assert(sizeof(Connect) == 288);
inline constexpr std::size_t kLeastConnect = offsetof(Connect, ece);

// The kernel bounds the backlog; 0 asks for as much as it allows.
struct Listen {
  std::uint32_t id;
  std::uint32_t backlog;
};

struct Accept {
  std::uint64_t uid;
  ConnParam param;
  std::uint32_t id;
  std::uint32_t reserved;
  Ece ece;
};
static_assert(sizeof(Accept) == 296);
inline constexpr std::size_t kLeastAccept = offsetof(Accept, ece);

// Without a reason (0) it is the program's own rejection.
struct Reject {
  std::uint32_t id;
  std::uint8_t private_data_len;
  std::uint8_t reason;
  std::array<std::uint8_t, 2> reserved;
  std::array<std::byte, 256> private_data;
};
static_assert(sizeof(Reject) == 264);

struct Disconnect {
  std::uint32_t id;
};

// Asks what a queue pair must be set to for a state: the library passes QpAttributes on to
// MODIFY_QP.
struct InitQpAttr {
  std::uint64_t response;
  std::uint32_t id;
  std::uint32_t qp_state;
};
static_assert(sizeof(InitQpAttr) == 16);

// `mask` says which members mean something, in the bits of the verbs.
struct QpAttributes {
  std::uint32_t mask;
  std::uint32_t qp_state;
  std::uint32_t cur_qp_state;
  std::uint32_t path_mtu;
  std::uint32_t path_mig_state;
  std::uint32_t qkey;
  std::uint32_t rq_psn;
  std::uint32_t sq_psn;
  std::uint32_t dest_qp_num;
  std::uint32_t access_flags;
  AhAttributes ah;
  AhAttributes alt_ah;
  std::array<std::uint32_t, 5> capabilities;
  std::uint16_t pkey_index;
  std::uint16_t alt_pkey_index;
  std::uint8_t en_sqd_async_notify;
  std::uint8_t sq_draining;
  std::uint8_t max_rd_atomic;
  std::uint8_t max_dest_rd_atomic;
  std::uint8_t min_rnr_timer;
  std::uint8_t port_num;
  std::uint8_t timeout;
  std::uint8_t retry_cnt;
  std::uint8_t rnr_retry;
  std::uint8_t alt_port_num;
  std::uint8_t alt_timeout;
  std::array<std::uint8_t, 5> reserved;
};
static_assert(sizeof(QpAttributes) == 144 && offsetof(QpAttributes, ah) == 40 &&
              offsetof(QpAttributes, pkey_index) == 124 && offsetof(QpAttributes, timeout) == 134);

// Answered with EAGAIN where there is none; a blocking program sleeps on the descriptor first.
struct GetEvent {
  std::uint64_t response;
};

struct EventReply {
  std::uint64_t uid;
  std::uint32_t id;
  std::uint32_t event;
  std::uint32_t status;
  // ConnParam, or UdParam of a datagram id: 304 bytes, not aligned to eight.
  std::array<std::byte, sizeof(UdParam)> param;
  std::uint32_t reserved;
  Ece ece;
};
static_assert(sizeof(EventReply) == 336 && offsetof(EventReply, param) == 20 &&
              offsetof(EventReply, ece) == 328);
inline constexpr std::size_t kLeastEvent = offsetof(EventReply, reserved);

// The options of level RDMA_OPTION_ID; type of service and time-out are bytes, the others words.
inline constexpr std::uint32_t kLevelId = 0;
inline constexpr std::uint32_t kOptionTos = 0;
inline constexpr std::uint32_t kOptionReuseAddress = 1;
inline constexpr std::uint32_t kOptionAfOnly = 2;
inline constexpr std::uint32_t kOptionAckTimeout = 3;
struct SetOption {
  std::uint64_t value;
  std::uint32_t id;
  std::uint32_t level;
  std::uint32_t name;
  std::uint32_t length;
};
static_assert(sizeof(SetOption) == 24);

inline constexpr std::uint32_t kCommunicationEstablished = 4;  // as an asynchronous event
// The program's queue pair has heard its peer before the kernel's RTU arrived.
struct Notify {
  std::uint32_t id;
  std::uint32_t event;
};

struct JoinIpMulticast {
  std::uint64_t response;
  std::uint64_t uid;
  SocketIn6 address;
  std::uint32_t id;
};
static_assert(sizeof(JoinIpMulticast) == 48);

inline constexpr std::uint16_t kJoinFullMember = 0;
inline constexpr std::uint16_t kJoinSendOnly = 1;
struct JoinMulticast {
  std::uint64_t response;
  std::uint64_t uid;
  std::uint32_t id;
  std::uint16_t address_size;
  std::uint16_t join_flags;
  SocketStorage address;
};
static_assert(sizeof(JoinMulticast) == 152);

// Moves an id, with the events that wait, from the file behind `fd` to the one that is written to.
struct MigrateId {
  std::uint64_t response;
  std::uint32_t id;
  std::uint32_t fd;
};
static_assert(sizeof(MigrateId) == 16);

}  // namespace weft::kernel::abi::ucma
