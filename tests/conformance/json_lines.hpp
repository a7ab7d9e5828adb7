// Owns reading the lines of JSON among what a program printed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace weft::testing {

// All objects that have `key`, in order. What is not JSON is passed over.
inline std::vector<nlohmann::json> json_lines(const std::string& output, const std::string& key) {
  std::vector<nlohmann::json> found;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_object() && object.contains(key)) {
      found.push_back(object);
    }
  }
  return found;
}

// What the modelled network lost for that reason, of `weft run --json`.
inline std::uint64_t dropped(const std::string& output, const std::string& reason) {
  const auto networks = json_lines(output, "network");
  return networks.empty()
             ? 0
             : networks.back().at("network").at("dropped").value(reason, std::uint64_t{0});
}

// The counter of that name, of all devices.
inline std::uint64_t counted(const std::string& output, const std::string& name) {
  std::uint64_t sum = 0;
  for (const auto& device : json_lines(output, "device")) {
    sum += device.at("counters").value(name, std::uint64_t{0});
  }
  return sum;
}

}  // namespace weft::testing
