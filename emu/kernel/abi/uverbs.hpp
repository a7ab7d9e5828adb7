// Owns the numbers and layouts of the kernel's verbs interface that every device type shares. Names
// are those of the kernel's headers, without their prefixes; only what is used here is listed.
// Words are in the machine's byte order unless it says big endian.
//
// Programs bring their own libibverbs, compiled against these layouts, so sizes are checked and
// nothing may be changed. A device's own data follow a body or a reply (emu/devices): no size here
// counts them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::kernel::abi {

// The numbers of commands that are written to the file (the older of two ways in).
enum class Command : std::uint32_t {
  get_context = 0,
  query_device = 1,
  query_port = 2,
  alloc_pd = 3,
  dealloc_pd = 4,
  create_ah = 5,
  destroy_ah = 8,
  reg_mr = 9,
  rereg_mr = 11,
  dereg_mr = 13,
  alloc_mw = 14,
  dealloc_mw = 16,
  create_comp_channel = 17,
  create_cq = 18,
  resize_cq = 19,
  destroy_cq = 20,
  req_notify_cq = 23,
  create_qp = 24,
  query_qp = 25,
  modify_qp = 26,
  destroy_qp = 27,
  post_send = 28,
  attach_multicast = 30,
  detach_multicast = 31,
  create_srq = 32,
  modify_srq = 33,
  query_srq = 34,
  destroy_srq = 35,
};

// Set in the number of a command in its longer form, whose lengths count 8 bytes instead of 4.
inline constexpr std::uint32_t kExtended = 0x80000000;
inline constexpr std::uint32_t kCommandMask = 0xFF;
inline constexpr unsigned long kIoctl = 0xC0181B01;  // RDMA_VERBS_IOCTL

// What every write() begins with. The lengths count words of 4 bytes; of an extended command, of 8,
// without its headers.
struct CommandHeader {
  std::uint32_t command;
  std::uint16_t in_words;
  std::uint16_t out_words;
};
static_assert(sizeof(CommandHeader) == 8);

// Follows the CommandHeader of an extended command: where the reply goes, and how much of body and
// reply is the device's own.
struct ExtendedHeader {
  std::uint64_t response;
  std::uint16_t provider_in_words;
  std::uint16_t provider_out_words;
  std::uint32_t reserved;
};
static_assert(sizeof(ExtendedHeader) == 16);

// --- ioctl: the newer way in, with attributes instead of bodies.

enum class IoctlObject : std::uint16_t { device = 0, qp = 4, mr = 7, counter = 19 };
// From here on are the methods, and the attributes of a method, that one driver has for itself.
inline constexpr std::uint16_t kFirstOwnIoctl = 0x1000;

// What the argument of the ioctl points to: this, and then `attributes` of IoctlAttribute.
struct IoctlHeader {
  std::uint16_t length;
  std::uint16_t object_id;
  std::uint16_t method_id;
  std::uint16_t attributes;
  std::uint64_t reserved;
  std::uint32_t driver_id;
  std::uint32_t reserved2;
};
static_assert(sizeof(IoctlHeader) == 24);

// One attribute: a number in `value` itself if it fits into 8 bytes, else a pointer.
struct IoctlAttribute {
  std::uint16_t id;
  std::uint16_t length;
  std::uint16_t flags;
  std::uint16_t reserved;
  std::uint64_t value;  // what fits into it, else where it is
};
static_assert(sizeof(IoctlAttribute) == 16);
// Flags: the kernel must understand the attribute; the kernel has written to it.
inline constexpr std::uint16_t kIoctlMandatory = 1;
inline constexpr std::uint16_t kIoctlValidOutput = 2;

// Where a completion counter's number lies.
struct BufferDescriptor {
  std::uint32_t type;
  std::int32_t fd;
  std::uint32_t flags;
  std::uint32_t optional_flags;
  std::uint64_t address;
  std::uint64_t length;
};
static_assert(sizeof(BufferDescriptor) == 32);
inline constexpr std::uint32_t kBufferInMemory = 1;

// --- Bodies of commands and of their replies. `response` is where the reply goes, `user_handle`
// what the library calls the object in events.

struct QueryDevice {
  std::uint64_t fw_ver;
  std::uint64_t node_guid;       // big endian
  std::uint64_t sys_image_guid;  // big endian
  std::uint64_t max_mr_size;
  std::uint64_t page_size_cap;
  std::uint32_t vendor_id;
  std::uint32_t vendor_part_id;
  std::uint32_t hw_ver;
  std::uint32_t max_qp;
  std::uint32_t max_qp_wr;
  std::uint32_t device_cap_flags;
  std::uint32_t max_sge;
  std::uint32_t max_sge_rd;
  std::uint32_t max_cq;
  std::uint32_t max_cqe;
  std::uint32_t max_mr;
  std::uint32_t max_pd;
  std::uint32_t max_qp_rd_atom;
  std::uint32_t max_ee_rd_atom;
  std::uint32_t max_res_rd_atom;
  std::uint32_t max_qp_init_rd_atom;
  std::uint32_t max_ee_init_rd_atom;
  std::uint32_t atomic_cap;
  std::uint32_t max_ee;
  std::uint32_t max_rdd;
  std::uint32_t max_mw;
  std::uint32_t max_raw_ipv6_qp;
  std::uint32_t max_raw_ethy_qp;
  std::uint32_t max_mcast_grp;
  std::uint32_t max_mcast_qp_attach;
  std::uint32_t max_total_mcast_qp_attach;
  std::uint32_t max_ah;
  std::uint32_t max_fmr;
  std::uint32_t max_map_per_fmr;
  std::uint32_t max_srq;
  std::uint32_t max_srq_wr;
  std::uint32_t max_srq_sge;
  std::uint16_t max_pkeys;
  std::uint8_t local_ca_ack_delay;
  std::uint8_t phys_port_cnt;
  std::uint8_t reserved[4];
};
static_assert(sizeof(QueryDevice) == 176);

inline constexpr std::size_t kExtendedQueryDeviceSize = 304;
// The common part, a mask, and how long the reply is.
inline constexpr std::size_t kLeastExtendedQueryDevice = sizeof(QueryDevice) + 8;

// How a port's states are numbered: in queries, by netlink, in sysfs.
[[nodiscard]] constexpr std::uint8_t port_state(bool up) { return up ? 4 : 1; }  // active, down
[[nodiscard]] constexpr std::uint8_t port_physical_state(bool up) {
  return up ? 5 : 3;  // link up, disabled
}

// What a program reads of a port. Most numbers are InfiniBand's and have fixed values on Ethernet.
struct QueryPort {
  std::uint32_t port_cap_flags;
  std::uint32_t max_msg_sz;
  std::uint32_t bad_pkey_cntr;
  std::uint32_t qkey_viol_cntr;
  std::uint32_t gid_tbl_len;
  std::uint16_t pkey_tbl_len;
  std::uint16_t lid;
  std::uint16_t sm_lid;
  std::uint8_t state;
  std::uint8_t max_mtu;
  std::uint8_t active_mtu;
  std::uint8_t lmc;
  std::uint8_t max_vl_num;
  std::uint8_t sm_sl;
  std::uint8_t subnet_timeout;
  std::uint8_t init_type_reply;
  std::uint8_t active_width;
  std::uint8_t active_speed;
  std::uint8_t phys_state;
  std::uint8_t link_layer;
  std::uint8_t flags;
  std::uint8_t reserved;
};
static_assert(sizeof(QueryPort) == 40 && offsetof(QueryPort, link_layer) == 37);

struct QueryPortExtended {  // by ioctl
  QueryPort base;
  std::uint16_t port_cap_flags2;
  std::uint16_t reserved;
  std::uint32_t active_speed;
};
static_assert(sizeof(QueryPortExtended) == 48);

struct GidEntry {  // by ioctl
  std::array<std::byte, 16> gid;
  std::uint32_t index;
  std::uint32_t port;
  std::uint32_t type;       // 0: InfiniBand, as devices without a network interface say
  std::uint32_t interface;  // 0: there is none
};
static_assert(sizeof(GidEntry) == 32);

// The path of a connected queue pair, inside MODIFY_QP and QUERY_QP.
struct QpDestination {
  std::array<std::byte, 16> dgid;
  std::uint32_t flow_label;
  std::uint16_t dlid;
  std::uint16_t reserved;
  std::uint8_t sgid_index;
  std::uint8_t hop_limit;
  std::uint8_t traffic_class;
  std::uint8_t sl;
  std::uint8_t src_path_bits;
  std::uint8_t static_rate;
  std::uint8_t is_global;
  std::uint8_t port_num;
};
static_assert(sizeof(QpDestination) == 32 && offsetof(QpDestination, is_global) == 30);

// An address handle says the same in another order.
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
static_assert(sizeof(AhAttributes) == 32 && offsetof(AhAttributes, is_global) == 29);

struct CreateCq {
  std::uint64_t response;
  std::uint64_t user_handle;
  std::uint32_t cqe;
  std::uint32_t comp_vector;
  std::int32_t comp_channel;
  std::uint32_t reserved;
};
static_assert(sizeof(CreateCq) == 32);

// The same as CreateCq with flags, without `response`: ExtendedHeader has that.
struct CreateCqExtended {
  std::uint64_t user_handle;
  std::uint32_t cqe;
  std::uint32_t comp_vector;
  std::int32_t comp_channel;
  std::uint32_t comp_mask;
  std::uint32_t flags;
  std::uint32_t reserved;
};
static_assert(sizeof(CreateCqExtended) == 32);

// `comp_mask` and `response_length` tell a newer library how much of its reply an older kernel
// knows.
struct CreateCqExtendedReply {
  std::uint32_t handle;
  std::uint32_t cqe;
  std::uint32_t comp_mask;
  std::uint32_t response_length;
};
static_assert(sizeof(CreateCqExtendedReply) == 16);

struct ResizeCq {
  std::uint64_t response;
  std::uint32_t handle;
  std::uint32_t cqe;
};
static_assert(sizeof(ResizeCq) == 16);

// Arms the queue for one event: of any completion, or only of solicited ones and errors.
struct RequestNotify {
  std::uint32_t handle;
  std::uint32_t solicited_only;
};
static_assert(sizeof(RequestNotify) == 8);

struct CreateAh {
  std::uint64_t response;
  std::uint64_t user_handle;
  std::uint32_t pd;
  std::uint32_t reserved;
  AhAttributes attributes;
};
static_assert(sizeof(CreateAh) == 56);

// Address in the program (`start`), and what peers are to call it (`hca_va`).
struct RegMr {
  std::uint64_t response;
  std::uint64_t start;
  std::uint64_t length;
  std::uint64_t hca_va;
  std::uint32_t pd;
  std::uint32_t access_flags;
};
static_assert(sizeof(RegMr) == 40);

struct ReregMr {
  std::uint64_t response;
  std::uint32_t handle;
  std::uint32_t flags;  // ReregFlag
  std::uint64_t start;
  std::uint64_t length;
  std::uint64_t hca_va;
  std::uint32_t pd;
  std::uint32_t access_flags;
};
static_assert(sizeof(ReregMr) == 48);
enum ReregFlag : std::uint32_t { kReregRange = 1, kReregPd = 2, kReregAccess = 4, kReregKnown = 7 };

// Type 1 is bound by a verb of its own, type 2 by a posted request.
struct AllocMw {
  std::uint64_t response;
  std::uint32_t pd;
  std::uint8_t type;
  std::uint8_t reserved[3];
};
static_assert(sizeof(AllocMw) == 16);

struct CreateSrq {
  std::uint64_t response;
  std::uint64_t user_handle;
  std::uint32_t pd;
  std::uint32_t max_wr;
  std::uint32_t max_sge;
  std::uint32_t limit;
};
static_assert(sizeof(CreateSrq) == 32);

struct CreateSrqReply {
  std::uint32_t handle;
  std::uint32_t max_wr;
  std::uint32_t max_sge;
  std::uint32_t srqn;
};
static_assert(sizeof(CreateSrqReply) == 16);

// `attr_mask` (SrqMask) says which of the two limits is meant.
struct ModifySrq {
  std::uint32_t handle;
  std::uint32_t attr_mask;
  std::uint32_t max_wr;
  std::uint32_t limit;
};
static_assert(sizeof(ModifySrq) == 16);
enum SrqMask : std::uint32_t { kSrqMaxWr = 1, kSrqLimit = 2 };

struct QuerySrqReply {
  std::uint32_t max_wr;
  std::uint32_t max_sge;
  std::uint32_t limit;
  std::uint32_t reserved;
};
static_assert(sizeof(QuerySrqReply) == 16);

// For both attaching and detaching; the group is a GID.
struct Multicast {
  std::array<std::byte, 16> gid;
  std::uint32_t qp;
  std::uint16_t mlid;
  std::uint16_t reserved;
};
static_assert(sizeof(Multicast) == 24);

// What is posted lies in the queue; the command only rings.
struct PostSend {
  std::uint64_t response;
  std::uint32_t handle;
  std::uint32_t wr_count;
  std::uint32_t sge_count;
  std::uint32_t wqe_size;
};
static_assert(sizeof(PostSend) == 24);

// `handle` in the reply names the queue pair in later commands, `qpn` on the network.
struct CreateQp {
  std::uint64_t response;
  std::uint64_t user_handle;
  std::uint32_t pd;
  std::uint32_t send_cq;
  std::uint32_t recv_cq;
  std::uint32_t srq;
  std::uint32_t max_send_wr;
  std::uint32_t max_recv_wr;
  std::uint32_t max_send_sge;
  std::uint32_t max_recv_sge;
  std::uint32_t max_inline_data;
  std::uint8_t sq_sig_all;
  std::uint8_t qp_type;
  std::uint8_t is_srq;
  std::uint8_t reserved;
};
static_assert(sizeof(CreateQp) == 56);

struct CreateQpReply {
  std::uint32_t handle;
  std::uint32_t qpn;
  std::uint32_t max_send_wr;
  std::uint32_t max_recv_wr;
  std::uint32_t max_send_sge;
  std::uint32_t max_recv_sge;
  std::uint32_t max_inline_data;
  std::uint32_t reserved;
};
static_assert(sizeof(CreateQpReply) == 32);

struct CreateQpExtended {
  std::uint64_t user_handle;
  std::uint32_t pd;
  std::uint32_t send_cq;
  std::uint32_t recv_cq;
  std::uint32_t srq;
  std::uint32_t max_send_wr;
  std::uint32_t max_recv_wr;
  std::uint32_t max_send_sge;
  std::uint32_t max_recv_sge;
  std::uint32_t max_inline_data;
  std::uint8_t sq_sig_all;
  std::uint8_t qp_type;
  std::uint8_t is_srq;
  std::uint8_t reserved;
  std::uint32_t comp_mask;
  std::uint32_t create_flags;
  std::uint32_t indirection_table;
  std::uint32_t source_qpn;
};
static_assert(sizeof(CreateQpExtended) == 64);

struct CreateQpExtendedReply {
  CreateQpReply base;
  std::uint32_t comp_mask;
  std::uint32_t response_length;
};
static_assert(sizeof(CreateQpExtendedReply) == 40);

// `attr_mask` says which members mean something; the bits are those of ibv_modify_qp().
struct ModifyQp {
  QpDestination dest;
  QpDestination alt_dest;
  std::uint32_t handle;
  std::uint32_t attr_mask;
  std::uint32_t qkey;
  std::uint32_t rq_psn;
  std::uint32_t sq_psn;
  std::uint32_t dest_qp_num;
  std::uint32_t access_flags;
  std::uint16_t pkey_index;
  std::uint16_t alt_pkey_index;
  std::uint8_t qp_state;
  std::uint8_t cur_qp_state;
  std::uint8_t path_mtu;
  std::uint8_t path_mig_state;
  std::uint8_t en_sqd_async_notify;
  std::uint8_t max_rd_atomic;
  std::uint8_t max_dest_rd_atomic;
  std::uint8_t min_rnr_timer;
  std::uint8_t port_num;
  std::uint8_t timeout;
  std::uint8_t retry_cnt;
  std::uint8_t rnr_retry;
  std::uint8_t alt_port_num;
  std::uint8_t alt_timeout;
  std::uint8_t reserved[2];
};
static_assert(sizeof(ModifyQp) == 112 && offsetof(ModifyQp, rnr_retry) == 107);

// With a rate limit, for which ModifyQp has no room.
struct ModifyQpExtended {
  ModifyQp base;
  std::uint32_t rate_limit;
  std::uint32_t reserved;
};
static_assert(sizeof(ModifyQpExtended) == 120);

// The same members as in ModifyQp, with what the queue pair was made with.
struct QueryQp {
  QpDestination dest;
  QpDestination alt_dest;
  std::uint32_t max_send_wr;
  std::uint32_t max_recv_wr;
  std::uint32_t max_send_sge;
  std::uint32_t max_recv_sge;
  std::uint32_t max_inline_data;
  std::uint32_t qkey;
  std::uint32_t rq_psn;
  std::uint32_t sq_psn;
  std::uint32_t dest_qp_num;
  std::uint32_t access_flags;
  std::uint16_t pkey_index;
  std::uint16_t alt_pkey_index;
  std::uint8_t qp_state;
  std::uint8_t cur_qp_state;
  std::uint8_t path_mtu;
  std::uint8_t path_mig_state;
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
  std::uint8_t sq_sig_all;
  std::uint8_t reserved[5];
};
static_assert(sizeof(QueryQp) == 128);

// Those that an emulated device can send.
enum class AsyncEvent : std::uint32_t {
  cq_error = 0,
  qp_fatal = 1,
  device_fatal = 8,
  port_active = 9,
  port_error = 10,
};

// Rights of a region, as programs give them.
enum Access : std::uint32_t {
  kAccessLocalWrite = 1U << 0,
  kAccessRemoteWrite = 1U << 1,
  kAccessRemoteRead = 1U << 2,
  kAccessRemoteAtomic = 1U << 3,
  kAccessKnown = 0x3FF,          // what there is a name for
  kAccessOptional = 0x3FF00000,  // a device may ignore these
};

// As programs number them; a device type refuses what it does not have.
enum QpTypeNumber : std::uint8_t {
  kQpRc = 2,
  kQpUc = 3,
  kQpUd = 4,
  kQpRawPacket = 8,
  kQpXrcInitiator = 9,
  kQpXrcTarget = 10,
  kQpDriver = 255,
};

}  // namespace weft::kernel::abi
