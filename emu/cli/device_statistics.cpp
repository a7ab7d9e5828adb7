// Owns gathering the devices' counters from the folders of their hosts.
//
// The files are shared memory into which devices count while they run. They stay when programs end,
// so they can be read afterwards, and counts of all processes of a NIC are summed up.
#include "emu/cli/device_statistics.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
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

// "-" for what the kind of device does not know.
std::string percent_text(std::optional<std::uint64_t> part, std::uint64_t whole) {
  return part ? fmt::format("{:.1f}%", percent(*part, whole)) : "-";
}

// What a kind of device does not count has no key.
void print_json(const DeviceStatistics& device) {
  const kernel::CounterSet& counters = device.counted.kind->counters();
  const kernel::Traffic traffic = counters.traffic(device.counted.sum);
  nlohmann::ordered_json line;
  line["device"] = device.nic;
  line["host"] = device.host;
  line["kind"] = device.counted.kind->kind();
  if (traffic.paths) {
    line["paths_used"] = *traffic.paths;
  }
  if (traffic.packets_out_of_order) {
    line["packets_out_of_order_percent"] =
        percent(*traffic.packets_out_of_order, traffic.packets_in);
  }
  if (traffic.messages_out_of_order) {
    line["messages_out_of_order_percent"] =
        percent(*traffic.messages_out_of_order, traffic.messages_in);
  }
  counters.visit(kernel::CounterSet::Place::all, device.counted.sum,
                 [&](const char* name, std::uint64_t value) { line["counters"][name] = value; });
  fmt::print("{}\n", line.dump());
}

// Prints a row, with the header above it if asked. False, and nothing is printed, if the device
// carried nothing.
bool print_row(const DeviceStatistics& device, bool header) {
  const kernel::Traffic traffic = device.counted.kind->counters().traffic(device.counted.sum);
  if (traffic.packets_in == 0 && traffic.packets_out == 0) {
    return false;
  }
  if (header) {
    complain("{:<10}{:<8}{:>12}{:>14}{:>12}{:>14}{:>7}{:>12}\n", "host", "device", "packets in",
             "out of order", "messages in", "out of order", "paths", "sent again");
  }
  complain("{:<10}{:<8}{:>12}{:>14}{:>12}{:>14}{:>7}{:>12}\n", device.host, device.nic,
           traffic.packets_in, percent_text(traffic.packets_out_of_order, traffic.packets_in),
           traffic.messages_in, percent_text(traffic.messages_out_of_order, traffic.messages_in),
           traffic.paths ? std::to_string(*traffic.paths) : "-", traffic.packets_sent_again);
  return true;
}

}  // namespace

std::vector<DeviceStatistics> device_statistics(const std::string& directory) {
  std::vector<DeviceStatistics> devices;
  std::error_code error;
  // Each level may be missing or go away meanwhile; then there is nothing to tell, which is no
  // error.
  for (const auto& host :
       fs::directory_iterator(fs::path(directory) / launch::kDevicesFolder, error)) {
    // One tree for each kind of device that was asked for.
    for (const auto& tree : fs::directory_iterator(host.path(), error)) {
      for (const auto& file : fs::directory_iterator(tree.path() / "statistics", error)) {
        if (const auto counted = devices::read_statistics(file.path().string())) {
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
    if (json) {
      print_json(device);
    } else if (print_row(device, first)) {
      first = false;
    }
  }
}

}  // namespace weft::cli
