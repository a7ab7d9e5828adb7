// Owns the names of the path selectors and what each name makes.
#include "srd/engine/paths/path_selector.hpp"

#include <array>
#include <cstddef>
#include <string>

#include "srd/base/check.hpp"

namespace weft::srd {
namespace {

// In the order of PathSelectorKind.
constexpr std::array<std::string_view, 7> kNames = {"oblivious", "ecmp", "reps", "bitmap",
                                                    "mixed",     "po2",  "plb"};

}  // namespace

Result<PathSelectorKind> parse_path_selector(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) {
      return static_cast<PathSelectorKind>(i);
    }
    known += known.empty() ? "" : ", ";
    known += kNames[i];
  }
  return fail(ErrorCode::invalid_argument,
              "there is no path selector \"" + std::string(name) + "\"; known are: " + known);
}

std::string_view to_string(PathSelectorKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

std::span<const std::string_view> path_selector_names() { return kNames; }

PathSelector::PathSelector(PathSelectorKind kind, std::uint16_t paths, std::uint64_t seed,
                           const PathTuning& tuning)
    : policy_(EcmpPolicy{1, 0}), paths_(paths) {
  WEFT_CHECK(paths >= 1 && paths <= kMaxPaths);
  switch (kind) {
    case PathSelectorKind::oblivious:
      policy_.emplace<ObliviousPolicy>(paths, seed);
      break;
    case PathSelectorKind::ecmp:
      policy_.emplace<EcmpPolicy>(paths, seed);
      break;
    case PathSelectorKind::reps:
      policy_.emplace<RepsPolicy>(paths, seed);
      break;
    case PathSelectorKind::bitmap:
      policy_.emplace<BitmapPolicy>(paths, seed);
      break;
    case PathSelectorKind::mixed:
      policy_.emplace<MixedPolicy>(paths, seed);
      break;
    case PathSelectorKind::po2:
      policy_.emplace<Po2Policy>(paths, seed, tuning);
      break;
    case PathSelectorKind::plb:
      policy_.emplace<PlbPolicy>(paths, seed, tuning);
      break;
  }
}

Result<PathSelector> make_path_selector(std::string_view name, std::uint16_t paths,
                                        std::uint64_t seed, const PathTuning& tuning) {
  if (paths < 1 || paths > kMaxPaths) {
    return fail(ErrorCode::invalid_argument, "a peer has 1 to " + std::to_string(kMaxPaths) +
                                                 " paths, not " + std::to_string(paths));
  }
  return parse_path_selector(name).map([&](PathSelectorKind kind) {
    return PathSelector{kind, paths, seed, tuning};
  });
}

}  // namespace weft::srd
