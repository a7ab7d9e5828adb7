// Owns what INIT_QP_ATTR tells the library to set in its queue pair.
#pragma once

#include <cstdint>

#include "emu/roce/cm/types.hpp"

namespace weft::roce::cm {

// Bits of a mask, numbered as the verbs number them.
enum QpMask : std::uint32_t {
  kMaskState = 1U << 0,
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

// States, numbered as the verbs number them.
inline constexpr std::uint32_t kQpInit = 1;
inline constexpr std::uint32_t kQpRtr = 2;
inline constexpr std::uint32_t kQpRts = 3;
inline constexpr std::uint32_t kQpError = 6;

// All of them for P_Key index 0 and port 1.
struct QpSettings {
  std::uint32_t mask = 0;
  std::uint32_t state = 0;
  std::uint32_t access = 0;
  std::uint32_t qkey = 0;
  Path path;
  std::uint32_t path_mtu = 0;
  std::uint32_t destination_qpn = 0;
  std::uint32_t rq_psn = 0;
  std::uint32_t sq_psn = 0;
  std::uint8_t max_reads = 0;
  std::uint8_t max_destination_reads = 0;
  std::uint8_t timeout = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry = 0;
};

}  // namespace weft::roce::cm
