// Owns telling what the emulated devices of a run have seen of the network.
#pragma once

#include <string>
#include <vector>

#include "emu/kernel/statistics.hpp"

namespace weft::cli {

// The counters of one emulated device, summed over the processes that have used it, also those that
// have ended.
struct DeviceStatistics {
  std::string host;
  std::string nic;
  kernel::Statistics counted;

  // How many paths packets have come in by.
  [[nodiscard]] std::size_t paths() const;
  // In percent of what was delivered.
  [[nodiscard]] double packets_out_of_order() const;
  [[nodiscard]] double messages_out_of_order() const;
};

// Of all hosts of the network in `directory`, by host and device. Files that cannot be read are
// left out. Programs write them now and then and when they end: numbers of one that runs may be a
// little old.
[[nodiscard]] std::vector<DeviceStatistics> device_statistics(const std::string& directory);

// A table on stderr for people, without devices that carried nothing; or an object per device on
// stdout.
void print_device_statistics(const std::vector<DeviceStatistics>& devices, bool json);

}  // namespace weft::cli
