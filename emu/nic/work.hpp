// Owns work requests and their completions in a form that all kinds of devices share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "srd/engine/requests.hpp"
#include "srd/engine/types.hpp"

namespace weft::nic {

class DatagramQp;

inline constexpr std::size_t kMaxSges = 2;  // of a request
inline constexpr std::size_t kMaxReceiveSges = srd::kMaxReceiveSegments;
inline constexpr std::size_t kMaxInline = 80;
inline constexpr std::uint16_t kUnknownAh = 0xFFFF;
inline constexpr std::uint32_t kGrhSize = 40;  // UD receives: room before the payload

// As the application wrote it: nothing is checked yet.
struct Sge {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t key = 0;
};

enum class Operation : std::uint8_t {
  send,
  rdma_read,
  rdma_write,
  receive,
  receive_write_immediate,
  invalid,    // a work request with an unknown operation
  oversized,  // one that claims more pieces or bytes than fit into it
};

// A request as the application wrote it: nothing is checked yet.
struct SendWork {
  std::uint64_t wr_id = 0;
  Operation operation = Operation::send;
  std::uint16_t ah = kUnknownAh;
  std::uint32_t destination = 0;  // queue pair at the peer
  std::uint32_t qkey = 0;
  std::optional<std::uint32_t> immediate;
  std::array<Sge, kMaxSges> sges{};
  std::uint8_t sge_count = 0;
  // Instead of sges; copied before post_send() returns.
  std::optional<std::span<const std::byte>> inline_data;
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
};

struct ReceiveWork {
  std::uint64_t wr_id = 0;
  std::array<Sge, kMaxReceiveSges> sges{};
  std::uint8_t sge_count = 0;
};

// How work ended. Each kind of device maps this to its own codes.
enum class WorkStatus : std::uint8_t {
  ok,
  flushed,
  local_qp_error,
  unsupported_operation,
  bad_ah,
  bad_local_key,
  local_length,
  remote_bad_key,
  remote_bad_qpn,
  remote_not_ready,
  remote_length,
  remote_restarted,
  remote_feature,
  remote_unknown_peer,
  unresponsive,
  unreachable,
};

[[nodiscard]] WorkStatus to_work_status(srd::Status status);

// How one request or receive ended. The fields after `operation` count for receives.
struct WorkCompletion {
  DatagramQp* qp = nullptr;
  std::uint64_t wr_id = 0;
  WorkStatus status = WorkStatus::ok;
  Operation operation = Operation::send;
  bool has_immediate = false;
  bool unsolicited = false;  // receive_write_immediate that consumed no posted receive; wr_id is 0
  std::uint16_t source_ah = kUnknownAh;
  std::uint32_t source_qpn = 0;
  std::uint32_t length = 0;
  std::uint32_t immediate = 0;
  srd::Address source{};  // meaningful where source_ah is kUnknownAh
};

}  // namespace weft::nic
