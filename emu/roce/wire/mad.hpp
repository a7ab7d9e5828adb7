// Owns the messages of connection management: MADs of 256 bytes between the queue pairs 1 of two
// NICs (specification, chapter 12; annex 11 for the IP header in private data).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "srd/net/address.hpp"

namespace weft::roce::wire {

// kGsiQkey: the well-known Q_Key of queue pair 1.
inline constexpr std::size_t kMadSize = 256;
inline constexpr std::size_t kMadHeader = 24;
inline constexpr std::uint32_t kGsiQkey = 0x80010000;
inline constexpr std::uint8_t kCmClass = 0x07;

// Attribute ids of the class.
enum class CmKind : std::uint16_t {
  request = 0x10,
  message_received = 0x11,  // MRA
  reject = 0x12,
  reply = 0x13,
  ready_to_use = 0x14,
  disconnect_request = 0x15,
  disconnect_reply = 0x16,
  sidr_request = 0x17,
  sidr_reply = 0x18,
};

enum class MadFault : std::uint8_t { none = 0, too_short, not_cm, unknown_kind };

// A message as numbers; which of them mean something depends on its kind. Private data begins where
// the kind's room begins, and is as long as that room (private_data_size()).
struct CmMessage {
  CmKind kind = CmKind::request;
  std::uint64_t transaction = 0;
  std::uint32_t local_id = 0;   // of the sender; SIDR: of the request
  std::uint32_t remote_id = 0;  // not in REQ and SIDR
  std::uint64_t service_id = 0;
  std::uint64_t ca_guid = 0;
  std::uint32_t qkey = 0;
  std::uint32_t qpn = 0;
  std::uint32_t starting_psn = 0;  // that the sender wants to receive first
  std::uint16_t pkey = 0xFFFF;
  // Counted by the sender: what it answers, what it asks.
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t remote_timeout = 0;  // REQ: 4.096 us * 2^n, for CM messages
  std::uint8_t local_timeout = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry = 0;
  std::uint8_t path_mtu = 0;  // 1: 256 ... 5: 4096
  std::uint8_t max_cm_retries = 0;
  std::uint8_t service = 0;  // REQ: 0 RC, 1 UC
  bool has_srq = false;
  bool flow_control = false;
  // REQ: the primary path
  srd::Address local_gid;
  srd::Address remote_gid;
  std::uint32_t flow_label = 0;
  std::uint8_t rate = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t subnet_local = 0;  // with the service level: the byte as it is
  std::uint8_t ack_timeout = 0;   // 4.096 us * 2^n, of the queue pair
  // REP
  std::uint8_t ack_delay = 0;
  std::uint8_t failover = 0;
  // REJ, MRA, SIDR_REP
  std::uint8_t refused_kind = 0;  // REJ, MRA: 0 REQ, 1 REP, 2 neither
  std::uint8_t service_timeout = 0;
  std::uint16_t reason = 0;
  std::uint8_t status = 0;
  std::uint8_t information_length = 0;
  std::array<std::byte, 72> information{};
  std::array<std::byte, 232> private_data{};
};

// In bytes; 0 for a kind that does not exist.
[[nodiscard]] std::size_t private_data_size(CmKind kind);

// `mad`: the payload of a datagram to queue pair 1.
[[nodiscard]] MadFault parse_cm(std::span<const std::byte> mad, CmMessage& message);
// Writes all 256 bytes.
void write_cm(const CmMessage& message, std::span<std::byte, kMadSize> mad);

// The first 36 bytes of the private data of REQ and SIDR_REQ, as RDMA-CM uses them.
inline constexpr std::size_t kIpHeaderSize = 36;
struct CmIpHeader {
  std::uint8_t ip_version = 4;
  std::uint16_t port = 0;  // of the sender
  srd::Address source;     // IPv4 mapped
  srd::Address destination;
};
[[nodiscard]] bool read_ip_header(const CmMessage& message, CmIpHeader& header);
void write_cm_ip_header(const CmIpHeader& header, CmMessage& message);

}  // namespace weft::roce::wire
