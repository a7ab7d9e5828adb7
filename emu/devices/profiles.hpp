// Owns the device profiles: which abilities, limits and habits an emulated device has, and its
// name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "emu/devices/device_names.hpp"
#include "emu/devices/personality.hpp"
#include "srd/base/result.hpp"

namespace weft::devices {

struct Profile {
  const Personality* kind = nullptr;
  std::string name;
  std::string abilities;               // as NicDescription holds them
  std::optional<DeviceNames> names{};  // the user's; else devices are called as their kind says

  // Of hosts with several kinds of devices: NIC 0 is as said above, the next ones are these, then
  // it begins anew. They have no `others` and no `names` of their own.
  std::vector<Profile> others{};

  // What the NIC of that index on a host is, and what it is called.
  [[nodiscard]] const Profile& of_nic(std::size_t index) const;
  [[nodiscard]] Result<std::string> device_name(std::size_t index) const;
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
