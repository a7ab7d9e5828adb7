// Owns the transition tables of SRD and UD queue pairs.
#include "emu/nic/qp_attributes.hpp"

#include <array>

namespace weft::nic {
namespace {

// What a change from one state to another needs and allows, as bits of the mask.
struct Transition {
  bool legal = false;
  std::uint32_t required = 0;
  std::uint32_t optional = 0;
};

using Table = std::array<std::array<Transition, kQpStates>, kQpStates>;

constexpr std::size_t at(QpState state) { return static_cast<std::size_t>(state); }

// The datagram table of the specification; SRD differs by rnr_retry and by RESET to ERR.
constexpr Table make_table(QpType type) {
  Table table{};
  const auto set = [&table](QpState from, QpState to, std::uint32_t required,
                            std::uint32_t optional) {
    table[at(from)][at(to)] = Transition{true, required, optional};
  };
  using enum QpState;
  const std::uint32_t keys = kMaskPkeyIndex | kMaskQkey;
  const std::uint32_t late = kMaskCurrentState | kMaskQkey;
  for (const QpState from : {reset, init, rtr, rts, sqd, sqe, error}) {
    set(from, reset, 0, 0);
    if (type == QpType::ud || from != reset) {
      set(from, error, 0, 0);
    }
  }
  set(reset, init, keys | kMaskPort, 0);
  set(init, init, 0, keys | kMaskPort);
  set(init, rtr, 0, keys);
  set(rtr, rts, kMaskSqPsn, late | (type == QpType::srd ? kMaskRnrRetry : 0U));
  set(rts, rts, 0, late);
  set(rts, sqd, 0, kMaskSqdNotify);
  set(sqd, rts, 0, late);
  set(sqd, sqd, 0, keys);
  set(sqe, rts, 0, late);
  return table;
}

constexpr Table kSrdTable = make_table(QpType::srd);
constexpr Table kUdTable = make_table(QpType::ud);

constexpr std::uint32_t kKnown = kMaskState | kMaskCurrentState | kMaskSqdNotify | kMaskPkeyIndex |
                                 kMaskPort | kMaskQkey | kMaskSqPsn | kMaskRnrRetry;

}  // namespace

Outcome<QpState> check_modify(const QpRules& rules, QpState current, std::uint32_t mask,
                              const QpAttributes& attributes) {
  if ((mask & ~kKnown) != 0 || ((mask & kMaskRnrRetry) != 0 && !rules.rnr_retry)) {
    return refuse(EOPNOTSUPP);
  }
  if (((mask & kMaskCurrentState) != 0 && attributes.current_state != at(current)) ||
      ((mask & kMaskState) != 0 && attributes.state >= kQpStates)) {
    return refuse(EINVAL);
  }
  const Table& table = rules.type == QpType::srd ? kSrdTable : kUdTable;
  // Without a new state the attributes are held against the transition from the present state to
  // itself.
  const QpState next = (mask & kMaskState) != 0 ? static_cast<QpState>(attributes.state) : current;
  const Transition& transition = table[at(current)][at(next)];
  const std::uint32_t given = mask & ~kMaskState;
  if (!transition.legal || (given & transition.required) != transition.required ||
      (given & ~(transition.required | transition.optional)) != 0) {
    return refuse(EINVAL);
  }
  if (((mask & kMaskPort) != 0 && attributes.port != 1) ||
      ((mask & kMaskPkeyIndex) != 0 && attributes.pkey_index != 0)) {
    return refuse(EOPNOTSUPP);  // there is one of each
  }
  if ((mask & kMaskRnrRetry) != 0 && attributes.rnr_retry > 7) {
    return refuse(EINVAL);
  }
  return next;
}

}  // namespace weft::nic
