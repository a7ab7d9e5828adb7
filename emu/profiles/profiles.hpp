// Owns the device profiles: which abilities, limits and habits an emulated device has.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "emu/kernel/nic_description.hpp"
#include "srd/base/result.hpp"

namespace weft::emu {

inline constexpr const char* kDefaultProfile = "full";

// The names of the built-in profiles.
[[nodiscard]] std::vector<std::string> profile_names();

// A built-in profile, or the file of that name (*.yaml).
[[nodiscard]] Result<kernel::NicDescription> load_profile(const std::string& name_or_file);
// From YAML text; `origin` is for messages.
[[nodiscard]] Result<kernel::NicDescription> parse_profile(const std::string& text,
                                                           const std::string& origin);

// What programs on an emulated EFA host need in their environment besides WEFT_* and LD_PRELOAD. A
// variable that the user has set already should be left alone.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> efa_environment();

}  // namespace weft::emu
