// Owns the columns of the table of flows.
//
// One row for each flow, as JSON lines or as CSV; both come from the same object, so that they have
// the same columns in the same order (docs/json.md).
#include "emu/cli/sim/flow_table.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;
using sim::FlowRecord;

// The words of docs/json.md; scripts compare them.
const char* state_of(const FlowRecord& record) {
  switch (record.state) {
    case FlowRecord::State::waiting:
      return "waiting";
    case FlowRecord::State::running:
      return "running";
    case FlowRecord::State::done:
      return "done";
    case FlowRecord::State::failed:
      return "failed";
  }
  return "unknown";
}

// To a nanosecond, in columns of microseconds.
Json rounded(double value) { return std::round(value * 1e3) / 1e3; }

// What has not happened is null, and empty in CSV: a zero would be averaged with the others.
Json row_of(const sim::Scenario& scenario, const sim::Simulation& simulation, std::size_t flow) {
  const FlowRecord& record = simulation.flows()[flow];
  const fabric::FlowSpec& spec = scenario.traffic.flows[flow];
  const bool started = record.state != FlowRecord::State::waiting;
  const bool done = record.state == FlowRecord::State::done;
  const auto time = static_cast<double>(record.finished - record.started);
  const auto ideal = static_cast<double>(std::max<fabric::Picos>(scenario.ideal.flows[flow], 1));
  return {{"flow", flow},
          {"group", scenario.traffic.groups[spec.group]},
          {"from", spec.source},
          {"to", spec.destination},
          {"bytes", spec.bytes},
          {"start_us", started ? rounded(fabric::microseconds(record.started)) : Json(nullptr)},
          {"fct_us", done ? rounded(time * 1e-6) : Json(nullptr)},
          {"ideal_us", rounded(ideal * 1e-6)},
          {"slowdown", done ? rounded(time / ideal) : Json(nullptr)},
          {"state", state_of(record)}};
}

// Names come from files and may hold commas and quotation marks, so all texts are quoted.
std::string csv_of(const Json& value) {
  if (value.is_null()) {
    return "";
  }
  if (!value.is_string()) {
    return value.dump();
  }
  std::string text = "\"";
  for (const char c : value.get<std::string>()) {
    text += c == '"' ? "\"\"" : std::string(1, c);
  }
  return text + "\"";
}

}  // namespace

std::string flow_table(const sim::Scenario& scenario, const sim::Simulation& simulation, bool csv) {
  std::string text;
  for (std::size_t flow = 0; flow < simulation.flows().size(); ++flow) {
    const Json row = row_of(scenario, simulation, flow);
    if (!csv) {
      text += row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
      continue;
    }
    std::string names;
    std::string values;
    for (const auto& [name, value] : row.items()) {
      names += (names.empty() ? "" : ",") + name;
      values += (values.empty() ? "" : ",") + csv_of(value);
    }
    // The names of the columns are the first line of a CSV file.
    text += (flow == 0 ? names + "\n" : "") + values + "\n";
  }
  return text;
}

}  // namespace weft::cli
