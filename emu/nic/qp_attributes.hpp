// Owns the states of a queue pair, its attributes, and which of them each transition requires and
// allows.
#pragma once

#include <cstdint>

#include "emu/nic/outcome.hpp"

namespace weft::nic {

enum class QpType : std::uint8_t { srd, ud };

// In the numbers of the verbs.
enum class QpState : std::uint8_t { reset = 0, init, rtr, rts, sqd, sqe, error };
inline constexpr std::uint8_t kQpStates = 7;

// Bits of an attribute mask, numbered as the verbs number them.
enum QpMask : std::uint32_t {
  kMaskState = 1U << 0,
  kMaskCurrentState = 1U << 1,
  kMaskSqdNotify = 1U << 2,
  kMaskAccess = 1U << 3,
  kMaskPkeyIndex = 1U << 4,
  kMaskPort = 1U << 5,
  kMaskQkey = 1U << 6,
  kMaskAddress = 1U << 7,
  kMaskRnrRetry = 1U << 11,
  kMaskAlternatePath = 1U << 14,
  kMaskSqPsn = 1U << 16,
  kMaskCap = 1U << 19,
};

struct QpAttributes {
  std::uint8_t state = 0;  // QpState, unchecked
  std::uint8_t current_state = 0;
  std::uint8_t port = 0;
  std::uint8_t rnr_retry = 7;  // the default of an SRD queue pair: for ever
  std::uint16_t pkey_index = 0;
  std::uint32_t qkey = 0;
  std::uint32_t sq_psn = 0;
};

// What the device allows beyond the specification's table.
struct QpRules {
  QpType type = QpType::srd;
  bool rnr_retry = true;  // the device has the capability
};

// The state after the modification, or why it is refused: EINVAL for an illegal transition, a
// missing attribute or a bad value, EOPNOTSUPP for an attribute that the device does not know.
[[nodiscard]] Outcome<QpState> check_modify(const QpRules& rules, QpState current,
                                            std::uint32_t mask, const QpAttributes& attributes);

}  // namespace weft::nic
