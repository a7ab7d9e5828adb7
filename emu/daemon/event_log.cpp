// Owns the lines of weftd's event log.
#include "emu/daemon/event_log.hpp"

#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "srd/run/clock.hpp"

namespace weft::daemon {

Result<void> EventLog::open(const std::string& path, TimePoint begin) {
  begin_ = begin;
  if (path.empty()) {
    return {};
  }
  auto file = srd::open_to_write(path, srd::Existing::append);
  if (!file) {
    return fail(file.error().code, "event log: " + file.error().message);
  }
  file_ = std::move(*file);
  return {};
}

void EventLog::note(const char* event, const nlohmann::json& details) {
  if (!file_ || events_ > kMax) {
    return;
  }
  const double seconds = static_cast<double>(nanoseconds(srd::monotonic_now() - begin_)) / 1e9;
  nlohmann::ordered_json line;
  line["t"] = std::round(seconds * 1e6) / 1e6;
  line["event"] = ++events_ > kMax ? "log_full" : event;
  for (const auto& [key, value] : details.items()) {
    line[key] = value;
  }
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  [[maybe_unused]] const auto written = ::write(file_.get(), text.data(), text.size());
}

}  // namespace weft::daemon
