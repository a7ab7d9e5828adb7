// Owns the layouts of RoCEv2's transport headers, as the InfiniBand specification (chapters 5 and
// 9) and annex 17 freeze them. All numbers are big-endian; the structs have no alignment, so they
// may be copied from any place of a packet.
#pragma once

#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>

namespace weft::roce::wire {

using boost::endian::big_uint16_buf_t;
using boost::endian::big_uint24_buf_t;
using boost::endian::big_uint32_buf_t;
using boost::endian::big_uint64_buf_t;

// Base transport header.
struct Bth {
  std::uint8_t opcode;
  std::uint8_t flags;  // the bits below
  big_uint16_buf_t pkey;
  std::uint8_t congestion;  // FECN and BECN; ICRC does not cover this byte
  big_uint24_buf_t destination_qpn;
  std::uint8_t ack_request;
  big_uint24_buf_t psn;
};
static_assert(sizeof(Bth) == 12);
// Bits of `flags`: solicited event, path migration state, two bits of pad, four of version.
inline constexpr std::uint8_t kSolicited = 0x80;
inline constexpr std::uint8_t kMigrated = 0x40;
inline constexpr std::uint8_t kPadMask = 0x30;
inline constexpr unsigned kPadShift = 4;
inline constexpr std::uint8_t kVersionMask = 0x0F;
// Bits of `congestion`, FECN and BECN, and of `ack_request`.
inline constexpr std::uint8_t kForwardCongestion = 0x80;
inline constexpr std::uint8_t kBackwardCongestion = 0x40;
inline constexpr std::uint8_t kAckRequest = 0x80;
inline constexpr std::size_t kCongestionOffset = 4;

// RDMA extended transport header.
struct Reth {
  big_uint64_buf_t address;
  big_uint32_buf_t rkey;
  big_uint32_buf_t length;
};
static_assert(sizeof(Reth) == 16);

// The address must be a multiple of eight; the two numbers are compared and stored big-endian.
struct AtomicEth {
  big_uint64_buf_t address;
  big_uint32_buf_t rkey;
  big_uint64_buf_t swap_or_add;
  big_uint64_buf_t compare;
};
static_assert(sizeof(AtomicEth) == 28);

// ACK extended transport header: in acknowledgements, and in the first and last packet of a READ's
// answer.
struct Aeth {
  std::uint8_t syndrome;
  big_uint24_buf_t msn;
};
static_assert(sizeof(Aeth) == 4);

// Datagram extended transport header.
struct Deth {
  big_uint32_buf_t qkey;
  std::uint8_t reserved;
  big_uint24_buf_t source_qpn;
};
static_assert(sizeof(Deth) == 8);

// The smaller headers, as bytes: each is one number, or zeros.
inline constexpr std::size_t kImmediateSize = 4;
inline constexpr std::size_t kIethSize = 4;
inline constexpr std::size_t kAtomicAckSize = 8;
inline constexpr std::size_t kCnpBodySize = 16;
inline constexpr std::size_t kIcrcSize = 4;
inline constexpr std::size_t kLargestHeader = sizeof(Bth) + sizeof(AtomicEth);

// The syndrome of an AETH: two bits of kind, five of value.
inline constexpr std::uint8_t kSyndromeKind = 0x60;
inline constexpr std::uint8_t kSyndromeValue = 0x1F;
inline constexpr std::uint8_t kAckNoCredit = 0x1F;  // a positive one that limits nothing
inline constexpr std::uint8_t kRnrNak = 0x20;
inline constexpr std::uint8_t kNak = 0x60;
// The codes of a negative acknowledgement.
inline constexpr std::uint8_t kNakSequence = 0x60;
inline constexpr std::uint8_t kNakInvalidRequest = 0x61;
inline constexpr std::uint8_t kNakRemoteAccess = 0x62;
inline constexpr std::uint8_t kNakRemoteOperation = 0x63;

inline constexpr std::uint32_t kMask24 = 0xFFFFFF;
inline constexpr std::uint32_t kMulticastQpn = 0xFFFFFF;

}  // namespace weft::roce::wire
