// Owns weftd's control protocol: what a line of JSON asks for, and the line that answers it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "emu/daemon/network_control.hpp"
#include "srd/base/time.hpp"

namespace weft::daemon {

// What the control socket and the metrics have access to. All of it belongs to the control thread.
struct ControlView {
  NetworkControl& network;
  std::string directory{};
  std::size_t mtu = 0;
  std::uint64_t seed = 0;
  TimePoint started{};
  std::function<std::size_t()> direct_pairs{};
  std::function<std::uint64_t()> refused{};  // connections of users who may not attach
  std::function<void()> stop{};              // ends weftd, once the answer has been sent
};

// Answers one request. Any bytes may come; the answer is always one line of JSON, with "ok" and, if
// that is false, "error".
[[nodiscard]] std::string answer_control(const ControlView& view, const std::string& line);

}  // namespace weft::daemon
