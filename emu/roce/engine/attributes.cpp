// Owns the specification's table of transitions (chapter 11.2.5.2, table 91): for each type and
// pair of states, which attributes must be given and which may be.
#include "emu/roce/engine/attributes.hpp"

#include <cerrno>

namespace weft::roce {
namespace {

// What one transition asks for and allows, as masks; any other attribute is an error.
struct Rule {
  bool legal = false;
  std::uint32_t required = 0;
  std::uint32_t optional = 0;
};

// INIT again may change what the first step has set.
Rule to_init(QpType type, QpState from) {
  const std::uint32_t key = type == QpType::ud ? kMaskQkey : kMaskAccess;
  const std::uint32_t attributes = kMaskPkeyIndex | kMaskPort | key;
  return from == QpState::reset ? Rule{true, attributes, 0} : Rule{true, 0, attributes};
}

Rule to_rtr(QpType type) {
  constexpr std::uint32_t kConnected = kMaskAddress | kMaskPathMtu | kMaskDestQpn | kMaskRqPsn;
  switch (type) {
    case QpType::rc:
      return {true, kConnected | kMaskMaxDestReads | kMaskMinRnrTimer,
              kMaskAccess | kMaskPkeyIndex};
    case QpType::uc:
      return {true, kConnected, kMaskAccess | kMaskPkeyIndex};
    case QpType::ud:
      break;
  }
  return {true, 0, kMaskPkeyIndex | kMaskQkey};
}

// What may be changed at any time while sending.
std::uint32_t running(QpType type) {
  constexpr std::uint32_t kAlways = kMaskCurrentState;
  switch (type) {
    case QpType::rc:
      return kAlways | kMaskAccess | kMaskMinRnrTimer;
    case QpType::uc:
      return kAlways | kMaskAccess;
    case QpType::ud:
      break;
  }
  return kAlways | kMaskQkey;
}

Rule to_rts(QpType type, QpState from) {
  if (from == QpState::rtr) {
    constexpr std::uint32_t kReliable =
        kMaskTimeout | kMaskRetryCount | kMaskRnrRetry | kMaskMaxReads;
    return {true, kMaskSqPsn | (type == QpType::rc ? kReliable : 0), running(type)};
  }
  return {from != QpState::sqe || type != QpType::rc, 0, running(type)};
}

// Draining first (RTS to SQD), then changes while nothing is under way (SQD to SQD).
Rule to_sqd(QpType type, QpState from) {
  if (from == QpState::rts) {
    return {true, 0, kMaskSqdEvent};
  }
  std::uint32_t optional = kMaskPkeyIndex;
  if (type == QpType::ud) {
    return {true, 0, optional | kMaskQkey};
  }
  optional |= kMaskAddress | kMaskAccess;
  if (type == QpType::rc) {
    optional |= kMaskPort | kMaskTimeout | kMaskRetryCount | kMaskRnrRetry | kMaskMaxReads |
                kMaskMaxDestReads | kMaskMinRnrTimer;
  }
  return {true, 0, optional};
}

Rule rule_of(QpType type, QpState from, QpState to) {
  switch (to) {
    case QpState::reset:
      return {true, 0, 0};
    case QpState::error:
      return {from != QpState::reset, 0, 0};  // as Linux; the specification allows it
    case QpState::init:
      return from == QpState::reset || from == QpState::init ? to_init(type, from) : Rule{};
    case QpState::rtr:
      return from == QpState::init ? to_rtr(type) : Rule{};
    case QpState::rts:
      return from == QpState::rtr || from == QpState::rts || from == QpState::sqd ||
                     from == QpState::sqe
                 ? to_rts(type, from)
                 : Rule{};
    case QpState::sqd:
      return from == QpState::rts || from == QpState::sqd ? to_sqd(type, from) : Rule{};
    case QpState::sqe:
      break;  // only by an error
  }
  return {};
}

}  // namespace

int check_modify(QpType type, QpState current, std::uint32_t mask, const QpAttributes& attributes,
                 const AttributeLimits& limits) {
  if ((mask & kMaskCurrentState) != 0 && attributes.current_state != current) {
    return EINVAL;
  }
  const QpState to = (mask & kMaskState) != 0 ? attributes.state : current;
  const Rule rule = rule_of(type, current, to);
  const std::uint32_t given = mask & ~std::uint32_t{kMaskState};
  if (!rule.legal || (given & rule.required) != rule.required ||
      (given & ~(rule.required | rule.optional)) != 0) {
    return EINVAL;
  }
  // Values of attributes that are not given are not looked at: programs leave garbage in them.
  const auto has = [mask](std::uint32_t bit) { return (mask & bit) != 0; };
  const bool good = (!has(kMaskPort) || attributes.port == 1) &&
                    (!has(kMaskPkeyIndex) || attributes.pkey_index == 0) &&
                    (!has(kMaskPathMtu) ||
                     (attributes.path_mtu >= 1 && attributes.path_mtu <= limits.max_path_mtu)) &&
                    (!has(kMaskAddress) || attributes.address.source_index < limits.addresses) &&
                    (!has(kMaskTimeout) || attributes.timeout < 32) &&
                    (!has(kMaskRetryCount) || attributes.retry_count < 8) &&
                    (!has(kMaskRnrRetry) || attributes.rnr_retry < 8) &&
                    (!has(kMaskMinRnrTimer) || attributes.min_rnr_timer < 32) &&
                    (!has(kMaskMaxReads) || attributes.max_reads <= limits.max_reads) &&
                    (!has(kMaskMaxDestReads) || attributes.max_dest_reads <= limits.max_reads);
  return good ? 0 : EINVAL;
}

}  // namespace weft::roce
