// Owns the attributes of a queue pair, and which of them each transition requires and allows.
#pragma once

#include <cstdint>

#include "emu/roce/engine/types.hpp"

namespace weft::roce {

// Bits of an attribute mask, numbered as the verbs number them.
enum QpMask : std::uint32_t {
  kMaskState = 1U << 0,
  kMaskCurrentState = 1U << 1,
  kMaskSqdEvent = 1U << 2,
  kMaskAccess = 1U << 3,
  kMaskPkeyIndex = 1U << 4,
  kMaskPort = 1U << 5,
  kMaskQkey = 1U << 6,
  kMaskAddress = 1U << 7,
  kMaskPathMtu = 1U << 8,
  kMaskTimeout = 1U << 9,
  kMaskRetryCount = 1U << 10,
  kMaskRnrRetry = 1U << 11,
  kMaskRqPsn = 1U << 12,
  kMaskMaxReads = 1U << 13,
  kMaskMinRnrTimer = 1U << 15,
  kMaskSqPsn = 1U << 16,
  kMaskMaxDestReads = 1U << 17,
  kMaskDestQpn = 1U << 20,
};

struct QpAttributes {
  QpState state = QpState::reset;
  QpState current_state = QpState::reset;
  bool sqd_event = false;
  std::uint32_t access = 0;
  std::uint16_t pkey_index = 0;
  std::uint8_t port = 1;
  std::uint32_t qkey = 0;
  AddressVector address;
  std::uint8_t path_mtu = 1;  // 1: 256 bytes ... 5: 4096
  std::uint8_t timeout = 0;   // 4.096 us * 2^timeout; 0: none
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry = 0;  // 7: for ever
  std::uint32_t rq_psn = 0;
  std::uint32_t sq_psn = 0;
  std::uint32_t destination_qpn = 0;
  std::uint8_t max_reads = 0;       // READs and atomics under way, as requester
  std::uint8_t max_dest_reads = 0;  // kept for replay, as responder
  std::uint8_t min_rnr_timer = 0;
  bool draining = false;  // SQD: what was begun is not over; of query_qp() only
};

// The limits of the NIC: what larger values of attributes are refused for.
struct AttributeLimits {
  std::uint8_t max_path_mtu = 5;
  std::uint8_t max_reads = 128;
  std::uint32_t addresses = 1;
};

// 0, or EINVAL: an illegal transition, a missing or foreign attribute, a bad value. Only attributes
// whose bit is in `mask` are looked at. Changes nothing.
[[nodiscard]] int check_modify(QpType type, QpState current, std::uint32_t mask,
                               const QpAttributes& attributes, const AttributeLimits& limits);

}  // namespace weft::roce
