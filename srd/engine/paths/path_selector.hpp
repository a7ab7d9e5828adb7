// Owns the choice of a path per packet: one value type over all policies, chosen by name at run
// time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "srd/base/result.hpp"
#include "srd/engine/paths/bitmap.hpp"
#include "srd/engine/paths/ecmp.hpp"
#include "srd/engine/paths/mixed.hpp"
#include "srd/engine/paths/oblivious.hpp"
#include "srd/engine/paths/path_policy.hpp"
#include "srd/engine/paths/plb.hpp"
#include "srd/engine/paths/po2.hpp"
#include "srd/engine/paths/reps.hpp"

namespace weft::srd {

inline constexpr std::uint16_t kMaxPaths = 256;

enum class PathSelectorKind : std::uint8_t { oblivious, ecmp, reps, bitmap, mixed, po2, plb };

// The name of a policy; resolve it once and create selectors by kind.
[[nodiscard]] Result<PathSelectorKind> parse_path_selector(std::string_view name);
[[nodiscard]] std::string_view to_string(PathSelectorKind kind);
[[nodiscard]] std::span<const std::string_view> path_selector_names();

// Movable, not copied. Policies with a number per path allocate it here, and nothing afterwards.
class PathSelector {
 public:
  PathSelector() : policy_(EcmpPolicy{1, 0}) {}
  // paths: 1 .. kMaxPaths.
  PathSelector(PathSelectorKind kind, std::uint16_t paths, std::uint64_t seed,
               const PathTuning& tuning);

  [[nodiscard]] PathId pick(TimePoint now) {
    return std::visit([now](auto& policy) { return policy.pick(now); }, policy_);
  }
  // `rtt` is zero when the event came without a measurement. A path that does not exist is ignored:
  // it is echoed by the peer, which may lie.
  void on_feedback(TimePoint now, PathId path, PathEvent event, Duration rtt) {
    if (path.value() >= paths_) [[unlikely]] {
      return;
    }
    std::visit([&](auto& policy) { policy.on_feedback(now, path, event, rtt); }, policy_);
  }
  [[nodiscard]] std::uint16_t paths() const { return paths_; }

 private:
  std::variant<ObliviousPolicy, EcmpPolicy, RepsPolicy, BitmapPolicy, MixedPolicy, Po2Policy,
               PlbPolicy>
      policy_;
  std::uint16_t paths_ = 1;
};

[[nodiscard]] Result<PathSelector> make_path_selector(std::string_view name, std::uint16_t paths,
                                                      std::uint64_t seed, const PathTuning& tuning);

}  // namespace weft::srd
