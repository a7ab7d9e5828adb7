// Owns the layouts that the kernel's soft-RoCE driver shares with its library: replies to commands,
// rings, and what lies in them.
//
// Sizes and places are those of Linux's rdma_user_rxe.h, whatever the names here. What came later,
// such as `ah` of a datagram, took the place of padding: libraries that do not know it leave it
// zero.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::devices::rxe {

inline constexpr std::uint32_t kDriverId = 14;

// --- Rings. The application maps them; the indices are its to change. They lie in cache lines of
// their own, as two sides write them.
struct RingHeader {
  std::uint32_t log2_element_size;
  std::uint32_t index_mask;
  std::array<std::byte, 120> reserved;
  std::uint32_t producer;
  std::array<std::byte, 124> reserved2;
  std::uint32_t consumer;
  std::array<std::byte, 124> reserved3;
};
static_assert(sizeof(RingHeader) == 384 && offsetof(RingHeader, producer) == 128 &&
              offsetof(RingHeader, consumer) == 256);

struct Sge {
  std::uint64_t address;
  std::uint32_t length;
  std::uint32_t lkey;
};
static_assert(sizeof(Sge) == 16);

// The end of a work request. Behind it lie the segments, or the inline data. Linux's driver counts
// its progress in `left`, `current_sge` and `sge_offset`; ours does not touch them, because the
// engine keeps that by itself.
struct DmaInfo {
  std::uint32_t length;
  std::uint32_t left;
  std::uint32_t current_sge;
  std::uint32_t sges;
  std::uint32_t sge_offset;
  std::uint32_t reserved;
};
static_assert(sizeof(DmaInfo) == 24);

struct RemoteMemory {
  std::uint64_t address;
  std::uint32_t rkey;
  std::uint32_t reserved;
};
struct Atomic {
  std::uint64_t address;
  std::uint64_t compare_add;
  std::uint64_t swap;
  std::uint32_t rkey;
  std::uint32_t reserved;
};
// How the packets of a datagram are addressed, where the library says so itself.
struct AddressVector {
  std::uint8_t port;
  std::uint8_t network_type;
  std::array<std::byte, 6> link;
  std::array<std::byte, 16> dgid;
  std::uint32_t flow_label;
  std::uint8_t sgid_index;
  std::uint8_t hop_limit;
  std::uint8_t traffic_class;
  std::uint8_t reserved;
  std::array<std::byte, 28> source;       // a socket address
  std::array<std::byte, 28> destination;  // too
};
static_assert(sizeof(AddressVector) == 88 && offsetof(AddressVector, dgid) == 8 &&
              offsetof(AddressVector, source) == 32 && offsetof(AddressVector, destination) == 60);
struct Datagram {
  std::uint32_t remote_qpn;
  std::uint32_t remote_qkey;
  std::uint16_t pkey_index;
  std::uint16_t reserved;
  std::uint32_t ah;  // 0: see `address`. Libraries before 39 never write it.
  std::array<std::uint32_t, 4> reserved2;
  AddressVector address;
};
static_assert(sizeof(Datagram) == 120 && offsetof(Datagram, ah) == 12 &&
              offsetof(Datagram, address) == 32);
struct Bind {
  std::uint64_t address;
  std::uint64_t length;
  std::uint32_t lkey;
  std::uint32_t window;
  std::uint32_t rkey;
  std::uint32_t access;
};
static_assert(sizeof(Bind) == 32);

// An entry of the send ring; which member of the union counts, the opcode and the kind of queue
// pair say.
struct SendWqe {
  std::uint64_t wr_id;
  std::uint32_t reserved;
  std::uint32_t opcode;
  std::uint32_t flags;
  std::uint32_t immediate;  // or the key to be invalidated
  union {
    RemoteMemory rdma;
    Atomic atomic;
    Datagram ud;
    Bind bind;
  };
  std::array<std::byte, 40> state;  // the driver's own
  DmaInfo dma;
};
static_assert(sizeof(SendWqe) == 208 && offsetof(SendWqe, rdma) == 24 &&
              offsetof(SendWqe, state) == 144 && offsetof(SendWqe, dma) == 184);

struct ReceiveWqe {
  std::uint64_t wr_id;
  std::uint32_t reserved;
  std::uint32_t reserved2;
  DmaInfo dma;
};
static_assert(sizeof(ReceiveWqe) == 40);

// A completion, as libraries copy it to the application.
struct Cqe {
  std::uint64_t wr_id;
  std::uint32_t status;
  std::uint32_t opcode;
  std::uint32_t vendor_error;
  std::uint32_t length;
  std::uint32_t immediate;  // or the key that was invalidated
  std::uint32_t qpn;
  std::uint32_t source_qpn;
  std::uint32_t flags;
  std::uint16_t pkey_index;
  std::uint16_t slid;
  std::uint8_t sl;
  std::uint8_t path_bits;
  std::uint8_t port;
  std::uint8_t reserved;
};
static_assert(sizeof(Cqe) == 48 && offsetof(Cqe, pkey_index) == 40);

// --- Replies
// Where the library finds a ring. A ring has no doorbell of its own: the library tells of sends by
// the command POST_SEND, and the device looks for receives when a message needs one.
struct MapInfo {
  std::uint64_t key;  // for mmap
  std::uint32_t size;
  std::uint32_t reserved;
};
static_assert(sizeof(MapInfo) == 16);

struct CqReply {
  MapInfo ring;
};
struct QpReply {
  MapInfo receive;
  MapInfo send;
};
static_assert(sizeof(QpReply) == 32);
struct SrqReply {
  MapInfo ring;
  std::uint32_t number;
  std::uint32_t reserved;
};
static_assert(sizeof(SrqReply) == 24);
struct AhReply {
  std::uint32_t number;
  std::uint32_t reserved;
};

}  // namespace weft::devices::rxe
