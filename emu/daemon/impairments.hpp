// Owns the impairments that people set and change while a network runs: what they asked for, by
// link, and the faults that this has become.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "srd/base/result.hpp"

namespace weft::daemon {

class NetworkControl;

class Impairments {
 public:
  // Fields that are given replace those of the same pattern, the others stay; null takes a field
  // away. Different patterns that meet on a link add up, as faults do.
  [[nodiscard]] Result<void> set(NetworkControl& network, const std::string& link,
                                 const nlohmann::json& fields);
  // Of that pattern, or all if it is empty.
  [[nodiscard]] Result<void> reset(NetworkControl& network, const std::string& link);
  [[nodiscard]] nlohmann::json json() const;

 private:
  struct Impaired {
    nlohmann::json fields = nlohmann::json::object();
    std::vector<std::uint32_t> faults;
  };
  std::map<std::string, Impaired> by_link_;
};

}  // namespace weft::daemon
