// Owns weftd's event log: one JSON object per line, with seconds since weftd began.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "srd/base/result.hpp"
#include "srd/base/time.hpp"
#include "srd/io/posix.hpp"

namespace weft::daemon {

// Only what is worth keeping for the whole run is an event. The file is bounded: after kMax lines
// the last one says "log_full". Written by the control thread, one write() per line.
class EventLog {
 public:
  // An empty path: no log.
  [[nodiscard]] Result<void> open(const std::string& path, TimePoint begin);
  void note(const char* event, const nlohmann::json& details);
  [[nodiscard]] std::uint64_t events() const { return events_; }

 private:
  static constexpr std::uint64_t kMax = 200'000;

  srd::UniqueFd file_;
  TimePoint begin_;
  std::uint64_t events_ = 0;
};

}  // namespace weft::daemon
