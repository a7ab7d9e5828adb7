// Owns the numbers and layouts of Linux's interface for management datagrams,
// /dev/infiniband/umadN.
//
// A program registers an agent for a class and methods by ioctl, then reads and writes datagrams,
// each with a Header in front. libibumad and opensm were compiled against these layouts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::kernel::abi::umad {

inline constexpr unsigned kAbiVersion = 5;

// The codes of ioctl(), with direction and size of the argument in their upper half.
inline constexpr unsigned long kRegisterAgent = 0xC01C1B01;
inline constexpr unsigned long kUnregisterAgent = 0x40041B02;
inline constexpr unsigned long kEnablePkey = 0x1B03;
inline constexpr unsigned long kRegisterAgent2 = 0xC0281B04;

inline constexpr std::uint32_t kMaxAgents = 32;  // of a file
inline constexpr std::uint32_t kUserRmpp = 1;    // the only flag of RegisterAgent2

// In front of each datagram that is read or written. Fields with `_be` are in network order. When
// read, it says where the datagram came from; when written, where it goes.
struct Header {
  std::uint32_t id;      // of the agent
  std::uint32_t status;  // 0, or ETIMEDOUT: nobody has answered
  std::uint32_t timeout_ms;
  std::uint32_t retries;
  std::uint32_t length;
  std::uint32_t qpn_be;
  std::uint32_t qkey_be;
  std::uint16_t lid_be;
  std::uint8_t sl;
  std::uint8_t path_bits;
  std::uint8_t grh_present;
  std::uint8_t gid_index;
  std::uint8_t hop_limit;
  std::uint8_t traffic_class;
  std::uint8_t gid[16];
  std::uint32_t flow_label_be;
  std::uint16_t pkey_index;  // from here on: only of files that have asked for it
  std::uint8_t reserved[6];
};
static_assert(sizeof(Header) == 64);
inline constexpr std::size_t kShortHeader = offsetof(Header, pkey_index);

// The older request; `id` is the kernel's answer in both of them.
struct RegisterAgent {
  std::uint32_t id;
  std::uint32_t methods[4];
  std::uint8_t qpn;
  std::uint8_t management_class;  // 0: only answers are for it
  std::uint8_t class_version;
  std::uint8_t oui[3];
  std::uint8_t rmpp_version;
  std::uint8_t padding;
};
static_assert(sizeof(RegisterAgent) == 28);

// Names flags, and has 32 bits for the vendor (`oui`). A file whose first agent is of this kind
// gets the long Header from then on.
struct RegisterAgent2 {
  std::uint32_t id;
  std::uint32_t qpn;
  std::uint8_t management_class;
  std::uint8_t class_version;
  std::uint16_t padding;
  std::uint32_t flags;
  std::uint64_t methods[2];
  std::uint32_t oui;
  std::uint8_t rmpp_version;
  std::uint8_t padding2[3];
};
static_assert(sizeof(RegisterAgent2) == 40);

}  // namespace weft::kernel::abi::umad
