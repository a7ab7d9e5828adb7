// Owns the text files in which a device shows its counters, and reading these counters whatever the
// kind of device.
#pragma once

#include <filesystem>
#include <string>

#include "emu/devices/personality.hpp"

namespace weft::devices {

struct NicStatistics {
  const Personality* kind;
  kernel::Statistics sum;  // of all processes
};

// `path` as of kernel::statistics_path().
[[nodiscard]] Result<NicStatistics> read_statistics(const std::string& path);

// Writes those of a NIC that has counted nothing yet, below its folder infiniband/<name>.
void write_counter_files(kernel::TreeWriter& tree, const Personality& kind,
                         const std::filesystem::path& folder);

// If `path`, a file or folder of the tree at `root`, belongs to counters, brings their files up to
// date. For all other paths it costs one search in the text.
void refresh_counter_files(const std::string& root, const char* path);

}  // namespace weft::devices
