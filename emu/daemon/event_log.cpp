// Owns the lines of weftd's event log.
#include "emu/daemon/event_log.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "srd/run/clock.hpp"

namespace weft::emu {

bool EventLog::open(const std::string& path, TimePoint begin) {
  begin_ = begin;
  if (path.empty()) {
    return true;
  }
  file_.open(path, std::ios::app);
  return file_.is_open();
}

void EventLog::note(const char* event, const nlohmann::json& details) {
  if (!file_.is_open() || events_ > kMost) {
    return;
  }
  const double seconds = static_cast<double>(nanoseconds(srd::monotonic_now() - begin_)) / 1e9;
  nlohmann::ordered_json line;
  line["t"] = std::round(seconds * 1e6) / 1e6;
  line["event"] = ++events_ > kMost ? "log_full" : event;
  for (const auto& [key, value] : details.items()) {
    line[key] = value;
  }
  file_ << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  file_.flush();
}

}  // namespace weft::emu
