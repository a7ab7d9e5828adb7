// Owns which kinds of devices are in this build: a line each.
#include "emu/devices/registry.hpp"

#include <algorithm>
#include <vector>

#include "emu/devices/efa/personality.hpp"
#include "emu/devices/rxe/personality.hpp"
#include "srd/base/joined.hpp"

namespace weft::devices {
namespace {

// The first is the default.
const Personality* const kKinds[] = {
    &efa::kPersonality,
    &rxe::kPersonality,
};

}  // namespace

std::span<const Personality* const> all_kinds() { return kKinds; }

const Personality& default_kind() { return *kKinds[0]; }

const Personality* find_kind(std::string_view kind) {
  const auto* const found =
      std::find_if(std::begin(kKinds), std::end(kKinds),
                   [kind](const Personality* one) { return one->kind() == kind; });
  return found == std::end(kKinds) ? nullptr : *found;
}

std::string names_of_kinds() {
  std::vector<std::string_view> names;
  for (const Personality* const kind : kKinds) {
    names.push_back(kind->kind());
  }
  return joined(names, ", ");
}

}  // namespace weft::devices
