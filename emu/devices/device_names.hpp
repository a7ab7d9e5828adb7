// Owns the names that a user gives to a host's emulated devices.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "srd/base/result.hpp"

namespace weft::devices {

// What the devices of a host are called, in the order of its NICs: a list with commas. In a list of
// one name, {n} stands for the number of the NIC and {n+16} for one that is larger by 16, so that
// it names them all.
class DeviceNames {
 public:
  // Programs find devices by these names below /sys and hand them to shells, so there is nothing in
  // them but letters, digits, '_', '-' and '.'.
  [[nodiscard]] static Result<DeviceNames> parse(std::string_view text);
  // An error: the list is shorter than that.
  [[nodiscard]] Result<std::string> of(std::size_t nic) const;

 private:
  std::vector<std::string> list_;
  // Of a pattern, what stands around the number; `list_` is empty then.
  std::string before_;
  std::string after_;
  std::size_t first_ = 0;
};

}  // namespace weft::devices
