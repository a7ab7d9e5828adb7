// Owns the names of the congestion controls and what each name makes.
#include "srd/engine/cc/congestion_control.hpp"

#include <array>
#include <cstddef>
#include <string>

namespace weft::srd {
namespace {

// In the order of CongestionControlKind.
constexpr std::array<std::string_view, 6> kNames = {"srd",   "nscc",   "swift",
                                                    "dctcp", "mprdma", "fixed"};

}  // namespace

Result<CongestionControlKind> parse_congestion_control(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) {
      return static_cast<CongestionControlKind>(i);
    }
    known += known.empty() ? "" : ", ";
    known += kNames[i];
  }
  return fail(ErrorCode::invalid_argument,
              "there is no congestion control \"" + std::string(name) + "\"; known are: " + known);
}

std::string_view to_string(CongestionControlKind kind) {
  return kNames[static_cast<std::size_t>(kind)];
}

std::span<const std::string_view> congestion_control_names() { return kNames; }

CongestionControl::CongestionControl(CongestionControlKind kind, const CcTuning& tuning)
    : policy_(FixedWindow(tuning)) {
  switch (kind) {
    case CongestionControlKind::srd:
      policy_.emplace<SrdControl>(tuning);
      break;
    case CongestionControlKind::nscc:
      policy_.emplace<Nscc>(tuning);
      break;
    case CongestionControlKind::swift:
      policy_.emplace<Swift>(tuning);
      break;
    case CongestionControlKind::dctcp:
      policy_.emplace<Dctcp>(tuning);
      break;
    case CongestionControlKind::mprdma:
      policy_.emplace<MpRdma>(tuning);
      break;
    case CongestionControlKind::fixed:
      break;
  }
  std::visit([this](auto& policy) { update(policy, [] {}); }, policy_);
}

Result<CongestionControl> make_congestion_control(std::string_view name, const CcTuning& tuning) {
  if (tuning.line_rate.is_zero() || tuning.base_rtt <= Duration::zero() || tuning.mtu_wire == 0 ||
      tuning.header >= tuning.mtu_wire) {
    return fail(
        ErrorCode::invalid_argument,
        "congestion control needs a line rate, a base RTT and a packet size above zero, and "
        "a packet larger than its header");
  }
  return parse_congestion_control(name).map([&](CongestionControlKind kind) {
    return CongestionControl{kind, tuning};
  });
}

}  // namespace weft::srd
