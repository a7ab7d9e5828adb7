// Owns telling what the emulated devices of a run have seen of the network.
#pragma once

#include <string>
#include <vector>

#include "emu/devices/counter_files.hpp"

namespace weft::cli {

// The counters of one NIC of one host, summed up over all processes that used it.
struct DeviceStatistics {
  std::string host;
  std::string nic;
  devices::NicStatistics counted;
};

// Of all hosts of the network in `directory`, by host and device.
[[nodiscard]] std::vector<DeviceStatistics> device_statistics(const std::string& directory);

// A table on stderr for people, without devices that carried nothing; or an object per device on
// stdout.
void print_device_statistics(const std::vector<DeviceStatistics>& devices, bool json);

}  // namespace weft::cli
