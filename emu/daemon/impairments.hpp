// Owns the impairments that are set and changed while a network runs: the fields that were asked
// for, by link, and the faults that carry them out.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "srd/base/result.hpp"

namespace weft::daemon {

class NetworkControl;

// Belongs to the control thread. After an error all impairments are as they were before.
class Impairments {
 public:
  // `link` is a pattern. Fields that are given replace those set for the same pattern; the others
  // stay; null removes one. Impairments of different patterns that match the same link add up, as
  // faults do.
  [[nodiscard]] Result<void> set(NetworkControl& network, const std::string& link,
                                 const nlohmann::json& fields);
  // Ends those of that pattern, or all if it is empty.
  [[nodiscard]] Result<void> reset(NetworkControl& network, const std::string& link);
  [[nodiscard]] nlohmann::json json() const;

 private:
  // What was asked for under one pattern, and the faults that carry it out now.
  struct Impaired {
    nlohmann::json fields = nlohmann::json::object();
    std::vector<std::uint32_t> faults;
  };
  std::map<std::string, Impaired> by_link_;
};

}  // namespace weft::daemon
