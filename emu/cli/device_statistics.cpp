// Owns gathering the devices' counters from the folders of their hosts.
#include "emu/cli/device_statistics.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>

#include "emu/cli/complain.hpp"
#include "emu/launch/host_environment.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

void print_json(const DeviceStatistics& device) {
  nlohmann::ordered_json line;
  line["device"] = device.nic;
  line["host"] = device.host;
  line["paths_used"] = device.paths();
  line["packets_out_of_order_percent"] = device.packets_out_of_order();
  line["messages_out_of_order_percent"] = device.messages_out_of_order();
  device.counted.transport.for_each(
      [&](const char* name, std::uint64_t value) { line["counters"][name] = value; });
  fmt::print("{}\n", line.dump());
}

}  // namespace

std::size_t DeviceStatistics::paths() const {
  std::size_t count = 0;
  for (const std::uint64_t word : counted.transport.paths_seen) {
    count += static_cast<std::size_t>(std::popcount(word));
  }
  return count;
}

double DeviceStatistics::packets_out_of_order() const {
  return percent(counted.transport.reordered_pkts, counted.transport.delivered_pkts);
}

double DeviceStatistics::messages_out_of_order() const {
  return percent(counted.transport.reordered_msgs, counted.transport.delivered_msgs);
}

std::vector<DeviceStatistics> device_statistics(const std::string& directory) {
  std::vector<DeviceStatistics> devices;
  std::error_code error;
  for (const auto& host :
       fs::directory_iterator(fs::path(directory) / launch::kDevicesFolder, error)) {
    // One tree for each kind of device that was asked for.
    for (const auto& tree : fs::directory_iterator(host.path(), error)) {
      for (const auto& file : fs::directory_iterator(tree.path() / "statistics", error)) {
        if (auto counted = kernel::read_statistics(file.path().string())) {
          devices.push_back(
              {host.path().filename().string(), file.path().filename().string(), *counted});
        }
      }
    }
  }
  // h2 before h10.
  std::sort(devices.begin(), devices.end(),
            [](const DeviceStatistics& a, const DeviceStatistics& b) {
              return std::tuple(a.host.size(), a.host, a.nic.size(), a.nic) <
                     std::tuple(b.host.size(), b.host, b.nic.size(), b.nic);
            });
  return devices;
}

void print_device_statistics(const std::vector<DeviceStatistics>& devices, bool json) {
  bool first = true;
  for (const DeviceStatistics& device : devices) {
    const srd::Counters& counted = device.counted.transport;
    if (json) {
      print_json(device);
      continue;
    }
    if (counted.delivered_pkts == 0 && counted.data_pkts == 0) {
      continue;
    }
    if (first) {
      complain("{:<10}{:<8}{:>12}{:>14}{:>12}{:>14}{:>7}{:>12}\n", "host", "device", "packets in",
               "out of order", "messages in", "out of order", "paths", "sent again");
      first = false;
    }
    complain("{:<10}{:<8}{:>12}{:>13.1f}%{:>12}{:>13.1f}%{:>7}{:>12}\n", device.host, device.nic,
             counted.delivered_pkts, device.packets_out_of_order(), counted.delivered_msgs,
             device.messages_out_of_order(), device.paths(), counted.retrans_pkts);
  }
}

}  // namespace weft::cli
