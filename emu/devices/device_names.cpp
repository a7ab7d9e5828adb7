// Owns reading such lists, and what the kernel takes for a name.
#include "emu/devices/device_names.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace weft::devices {
namespace {

constexpr std::size_t kMaxLength = 63;     // IB_DEVICE_NAME_MAX, with its zero
constexpr std::size_t kMaxFirst = 10'000;  // what a number may begin with
constexpr std::size_t kMaxNics = 16;       // of a host; a pattern must be good for all

bool is_name(const std::string& text) {
  const auto good = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-' || c == '.';
  };
  return !text.empty() && text.size() <= kMaxLength && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), good);
}

tl::unexpected<Error> refused(std::string_view text, const std::string& why) {
  return fail(ErrorCode::invalid_argument, "'" + std::string(text) + "' names no devices: " + why +
                                               "; such as mlx5_{n}, mlx5_{n+16} or mlx5_0,mlx5_16");
}

// What stands in the braces: n, or n+NUMBER.
bool read_first(std::string_view inside, std::size_t& first) {
  if (inside == "n") {
    return true;
  }
  if (!inside.starts_with("n+")) {
    return false;
  }
  const char* const end = inside.data() + inside.size();
  const auto [read, error] = std::from_chars(inside.data() + 2, end, first);
  return error == std::errc{} && read == end && first <= kMaxFirst;
}

}  // namespace

Result<DeviceNames> DeviceNames::parse(std::string_view text) {
  DeviceNames names;
  if (const std::size_t open = text.find('{'); open != std::string_view::npos) {
    const std::size_t close = text.find('}', open);
    if (close == std::string_view::npos ||
        !read_first(text.substr(open + 1, close - open - 1), names.first_)) {
      return refused(text, "in braces stands n, or n and what is added to it");
    }
    names.before_ = text.substr(0, open);
    names.after_ = text.substr(close + 1);
    if (!is_name(names.before_ + std::to_string(names.first_ + kMaxNics) + names.after_)) {
      return refused(text, "letters, digits, '_', '-' and '.' make a name of up to 63");
    }
    return names;
  }
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    names.list_.emplace_back(text.substr(at, comma - at));
    at = comma + 1;
    if (!is_name(names.list_.back())) {
      return refused(text, "letters, digits, '_', '-' and '.' make a name of up to 63");
    }
    if (std::count(names.list_.begin(), names.list_.end(), names.list_.back()) > 1) {
      return refused(text, "two have the same name");
    }
  }
  return names;
}

Result<std::string> DeviceNames::of(std::size_t nic) const {
  if (list_.empty()) {
    return before_ + std::to_string(first_ + nic) + after_;
  }
  if (nic >= list_.size()) {
    return fail(ErrorCode::invalid_argument,
                "NIC " + std::to_string(nic) + " has no name: there are " +
                    std::to_string(list_.size()) + ", and a host has more NICs");
  }
  return list_[nic];
}

}  // namespace weft::devices
