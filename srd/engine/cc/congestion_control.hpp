// Owns how much may be in flight to a peer: one value type over all policies, chosen by name at run
// time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "srd/base/prefetch.hpp"
#include "srd/base/result.hpp"
#include "srd/engine/cc/cc_policy.hpp"
#include "srd/engine/cc/dctcp.hpp"
#include "srd/engine/cc/fixed_window.hpp"
#include "srd/engine/cc/mprdma.hpp"
#include "srd/engine/cc/nscc.hpp"
#include "srd/engine/cc/srd_control.hpp"
#include "srd/engine/cc/swift.hpp"

namespace weft::srd {

enum class CongestionControlKind : std::uint8_t { srd, nscc, swift, dctcp, mprdma, fixed };

// The name of a policy; resolve it once and create controls by kind.
[[nodiscard]] Result<CongestionControlKind> parse_congestion_control(std::string_view name);
[[nodiscard]] std::string_view to_string(CongestionControlKind kind);
[[nodiscard]] std::span<const std::string_view> congestion_control_names();

class CongestionControl {
 public:
  CongestionControl() : CongestionControl(CongestionControlKind::fixed, CcTuning{}) {}
  CongestionControl(CongestionControlKind kind, const CcTuning& tuning);

  // Call for every acknowledgement that acknowledged something new, once per acknowledgement.
  void on_ack(const AckSample& sample) {
    std::visit([&](auto& policy) { update(policy, [&] { policy.on_ack(sample); }); }, policy_);
  }
  // Call once per lost packet, when it is first taken for lost.
  void on_loss(TimePoint now, Bytes bytes, LossKind kind, std::optional<PathId> path = {}) {
    std::visit(
        [&](auto& policy) { update(policy, [&] { policy.on_loss(now, bytes, kind, path); }); },
        policy_);
  }

  // A round trip of packets that do not wait behind data, where the network has priorities.
  void on_distance(Duration rtt) {
    if (auto* const srd = std::get_if<SrdControl>(&policy_)) {
      srd->on_distance(rtt);
    }
  }

  // A packet may leave if it and what is in flight fit into the window. Never less than one packet.
  [[nodiscard]] Bytes window() const { return window_; }
  // Unless zero, packets leave no faster than this, whatever the window says.
  [[nodiscard]] Rate pacing_rate() const { return pacing_; }
  // A hint: these two will be asked for.
  void prefetch_window() const { prefetch(&window_, sizeof window_ + sizeof pacing_); }

 private:
  template <class Policy, class Step>
  void update(Policy& policy, Step step) {
    step();
    window_ = policy.window();
    pacing_ = policy.pacing_rate();
  }

  // These two are read for each packet: kept beside the policy, not asked of it. An acknowledgement
  // reads the end of the default policy and the variant's index, which lie right before.
  std::variant<FixedWindow, SrdControl, Nscc, Swift, Dctcp, MpRdma> policy_;
  Bytes window_ = 0;
  Rate pacing_;
};

[[nodiscard]] Result<CongestionControl> make_congestion_control(std::string_view name,
                                                                const CcTuning& tuning);

}  // namespace weft::srd
