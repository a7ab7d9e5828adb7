// Owns the words and queue formats that the stock EFA library and its device exchange.
//
// Sizes and places of all fields are those of Linux's efa-abi.h (commands) and of rdma-core's
// efa_io_defs.h (queues), whatever the names here: a library that was compiled years ago, or will
// be in a year, finds its fields at the same offsets. Newer versions add fields at the end of a
// struct, and bits of `comp_mask` or of a capability word announce them; they never move one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::devices::efa {

inline constexpr std::uint32_t kDriverId = 17;

// --- Words that follow the common part of commands and replies.

// The answer to GET_CONTEXT: what the library must know before it sends any other command.
struct ContextReply {
  std::uint32_t comp_mask;
  std::uint32_t commands_with_udata;
  std::uint16_t sub_cqs_per_cq;
  std::uint16_t inline_size;
  std::uint32_t max_llq_size;  // bytes
  std::uint16_t max_tx_batch;  // 0: no limit
  std::uint16_t min_sq_wr;
  std::uint16_t inline_size_wide;
  std::uint16_t reserved;
};
static_assert(sizeof(ContextReply) == 24);
inline constexpr std::uint32_t kUdataQueryDevice = 1;
// Without it the library does not open the device.
inline constexpr std::uint32_t kUdataCreateAh = 2;

struct DeviceReply {
  std::uint32_t comp_mask;
  std::uint32_t max_sq_wr;
  std::uint32_t max_rq_wr;
  std::uint16_t max_sq_sge;
  std::uint16_t max_rq_sge;
  std::uint32_t max_rdma_size;
  std::uint32_t capabilities;
};
static_assert(sizeof(DeviceReply) == 24);

// The bits that are missing belong to what no emulated device has: 4 is polling of data in 128
// bytes, 7 completion queues in external memory.
enum Capability : std::uint32_t {
  kRdmaRead = 1U << 0,
  kRnrRetry = 1U << 1,
  kCqNotifications = 1U << 2,
  kCqWithSgid = 1U << 3,
  kRdmaWrite = 1U << 5,
  kUnsolicitedWrite = 1U << 6,
  kCompletionCounters = 1U << 8,
  kRequestId64 = 1U << 9,
};

struct NumberReply {  // of ALLOC_PD and CREATE_AH
  std::uint32_t comp_mask;
  std::uint16_t number;
  std::uint16_t reserved;
};
static_assert(sizeof(NumberReply) == 8);

// What the library asks for beyond the common part of CREATE_CQ. A flag that the profile does not
// have is refused, so that no program takes for granted what the device does not do.
struct CqCommand {
  std::uint32_t comp_mask;
  std::uint32_t entry_size;
  std::uint16_t sub_cqs;
  std::uint8_t flags;
  std::uint8_t reserved[5];
};
static_assert(sizeof(CqCommand) == 16);
inline constexpr std::uint8_t kCqWithChannelFlag = 1;
inline constexpr std::uint8_t kCqWithSgidFlag = 2;
inline constexpr std::uint8_t kCqRequestId64Flag = 4;

struct CqReply {
  std::uint32_t comp_mask;
  std::uint32_t reserved;
  std::uint64_t ring_key;
  std::uint64_t ring_size;
  std::uint16_t cq_index;
  std::uint16_t reserved2;
  std::uint32_t doorbell_offset;
  std::uint64_t doorbell_key;
};
static_assert(sizeof(CqReply) == 40);
inline constexpr std::uint32_t kCqHasDoorbell = 1;

// Both queues' sizes are in bytes: the library has computed them from its own entry sizes, from
// which the device infers whether work requests are wide.
struct QpCommand {
  std::uint32_t comp_mask;
  std::uint32_t rq_ring_size;
  std::uint32_t sq_ring_size;
  std::uint32_t driver_type;  // 0: SRD
  // Newer libraries go on:
  std::uint16_t flags;
  std::uint8_t service_level;
  std::uint8_t reserved[5];
};
static_assert(sizeof(QpCommand) == 24);
inline constexpr std::size_t kShortQpCommand = 16;
inline constexpr std::uint16_t kQpUnsolicitedWriteFlag = 1;
inline constexpr std::uint16_t kQpRequestId64Flag = 2;

struct QpReply {
  std::uint32_t comp_mask;
  std::uint32_t rq_doorbell_offset;
  std::uint32_t sq_doorbell_offset;
  std::uint32_t sq_offset;
  std::uint64_t rq_key;
  std::uint64_t rq_size;
  std::uint64_t rq_doorbell_key;
  std::uint64_t sq_doorbell_key;
  std::uint64_t sq_key;
  std::uint16_t send_sub_cq;
  std::uint16_t recv_sub_cq;
  std::uint32_t reserved;
};
static_assert(sizeof(QpReply) == 64);

// --- Queues.

// A piece of memory, local or remote.
struct WireSge {
  std::uint32_t length;
  std::uint32_t key;
  std::uint32_t address_low;
  std::uint32_t address_high;
  [[nodiscard]] std::uint64_t address() const {
    return std::uint64_t{address_high} << 32 | address_low;
  }
};
static_assert(sizeof(WireSge) == 16);

inline constexpr std::size_t kWqeSize = 64;
inline constexpr std::size_t kWideWqeSize = 128;

// The head of both sizes of send work request. A device that reads entries ahead of the doorbell
// needs the phase in ctrl2 to tell new ones from old ones; ours goes by the doorbell's count only.
struct WqeHead {
  std::uint16_t req_id;
  std::uint8_t ctrl1;  // 3:0 operation, 4 has immediate, 5 inline
  std::uint8_t ctrl2;  // 0 phase
  std::uint16_t destination_qpn;
  std::uint16_t length;  // inline: bytes; otherwise number of local pieces
  std::uint32_t immediate;
  std::uint16_t ah;
  std::uint8_t ctrl3;
  std::uint8_t reserved;
  std::uint32_t qkey;
  std::uint8_t reserved2[6];
  std::array<std::uint16_t, 3> req_id_high;
};
static_assert(sizeof(WqeHead) == 32 && offsetof(WqeHead, req_id_high) == 26);
inline constexpr std::uint8_t kOperationMask = 0x0F;
inline constexpr std::uint8_t kHasImmediate = 0x10;
inline constexpr std::uint8_t kInline = 0x20;
enum WqeOperation : std::uint8_t { kOpSend = 0, kOpRead = 1, kOpWrite = 2 };

// One piece of a receive; a work request is a chain of them, from the descriptor with the first
// flag to the one with the last flag. The doorbell counts descriptors, not work requests.
struct ReceiveDescriptor {
  std::uint32_t address_low;
  std::uint32_t address_high;
  std::uint16_t req_id;  // in the first one of a work request
  std::uint16_t length;
  std::uint32_t key_and_flags;  // 23:0 key, 30 first, 31 last
};
static_assert(sizeof(ReceiveDescriptor) == 16);
inline constexpr std::uint32_t kKeyMask = 0xFFFFFF;
inline constexpr std::uint32_t kFirstDescriptor = 1U << 30;
inline constexpr std::uint32_t kLastDescriptor = 1U << 31;

// A completion, of 16 or 32 bytes, as the queue was made. Its request id, with the queue pair's
// number, is all by which the library finds its own record of the work.
struct Cqe {
  std::uint16_t req_id;
  std::uint8_t status;
  std::uint8_t flags;  // 0 phase, 2:1 queue, 3 has immediate, 6:4 operation, 7 unsolicited
  std::uint16_t qpn;
  std::uint16_t length;
  std::uint16_t ah;
  std::uint16_t source_qpn;
  std::uint32_t immediate;
  // Only in entries of 32 bytes. Of a write with immediate: bits 31:16 of its length in the first
  // two.
  std::array<std::byte, 16> source_gid;
};
static_assert(sizeof(Cqe) == 32);
inline constexpr std::size_t kShortCqe = 16;
inline constexpr std::uint8_t kCqeSendQueue = 1U << 1;
inline constexpr std::uint8_t kCqeReceiveQueue = 2U << 1;
inline constexpr std::uint8_t kCqeHasImmediate = 1U << 3;
inline constexpr unsigned kCqeOperationShift = 4;
inline constexpr std::uint8_t kCqeUnsolicited = 1U << 7;

// The CQ's doorbell word: 15:0 consumer count, 30:29 command number, 31 arm.
inline constexpr std::uint32_t kArm = 1U << 31;

// As the device numbers them; the library turns them into the verbs' own.
enum class Status : std::uint8_t {
  ok = 0,
  flushed = 1,
  qp_error = 2,
  unsupported_operation = 3,
  bad_ah = 4,
  bad_lkey = 5,
  bad_length = 6,
  remote_bad_address = 7,
  remote_abort = 8,
  remote_bad_qpn = 9,
  remote_rnr = 10,
  remote_length = 11,
  remote_status = 12,
  unresponsive = 13,
  unknown_peer = 14,
  unreachable = 15,
  remote_feature = 18,
};

}  // namespace weft::devices::efa
