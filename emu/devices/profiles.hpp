// Owns the device profiles: which abilities, limits and habits an emulated device has.
#pragma once

#include <string>
#include <vector>

#include "emu/devices/personality.hpp"
#include "srd/base/result.hpp"

namespace weft::devices {

struct Profile {
  const Personality* kind = nullptr;
  std::string name;
  std::string abilities;  // as NicDescription holds them
};

// The names of the built-in profiles of that kind.
[[nodiscard]] std::vector<std::string> profile_names(const Personality& kind);

// A built-in profile of that kind, or the file of that name (*.yaml).
[[nodiscard]] Result<Profile> load_profile(const Personality& kind,
                                           const std::string& name_or_file);
// From YAML text; `origin` is for messages. The text may say `kind:`; if it does not, it is `kind`.
// Throws nothing.
[[nodiscard]] Result<Profile> parse_profile(const Personality& kind, const std::string& text,
                                            const std::string& origin);

}  // namespace weft::devices
