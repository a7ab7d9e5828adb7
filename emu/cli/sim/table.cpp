// Owns the layout of the tables: of one run, with all that it measured, and of several, with a
// column for each setting in which they differ.
#include "emu/cli/sim/table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string>

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;

double number(const Json& run, const char* key) { return run.at(key).get<double>(); }

std::string label(const Json& run) {
  const auto variant = run.at("variant").get<std::string>();
  return run.at("scenario").get<std::string>() + (variant.empty() ? "" : " / " + variant);
}

// A time that never came is -1.
std::string value_of(const Json& check) {
  const double value = number(check, "value");
  return value < 0 ? "never" : fmt::format("{:.4g}", value);
}

// How the run ended: unfinished, with what is missing, or the makespan beside the ideal.
void print_end(const Json& run) {
  const auto flows = run["flows"].get<std::uint64_t>();
  if (run["ratio"].is_null()) {
    fmt::print(
        "  UNFINISHED        {} of {} flows had not ended after {:.1f} us, when the run was cut\n",
        flows - run["finished"].get<std::uint64_t>() - run["failed"].get<std::uint64_t>(), flows,
        number(run, "simulated_us"));
    fmt::print("                    (time_limit); the last that ended took until {:.1f} us\n",
               number(run, "makespan_us"));
  } else {
    fmt::print("  all done after    {:.1f} us = {:.3f} x ideal ({:.1f} us)\n",
               number(run, "makespan_us"), number(run, "ratio"), number(run, "ideal_us"));
  }
}

// How much longer flows took than alone in the network, by their size.
void print_slowdown(const Json& run) {
  if (!run.contains("slowdown")) {
    return;
  }
  fmt::print("  slowdown          times the ideal of the flow alone\n");
  for (const auto& [size, is] : run["slowdown"].items()) {
    fmt::print("    {:<15} p50 {:.2f}  p99 {:.2f}  max {:.2f}  ({} flows)\n", size,
               number(is, "p50"), number(is, "p99"), number(is, "max"),
               is["flows"].get<std::uint64_t>());
  }
}

}  // namespace

// Whether packets are accounted for comes first: if not, no other number of the run can be
// believed. Then the first bound that was missed.
std::string verdict_on(const Json& run) {
  if (run.contains("conservation")) {
    return "FAIL " + run["conservation"].get<std::string>();
  }
  for (const Json& check : run["checks"]) {
    if (!check["met"].get<bool>()) {
      return fmt::format("FAIL {} {} {} {:.4g}", check["what"].get<std::string>(), value_of(check),
                         check["at_least"].get<bool>() ? "<" : ">", number(check, "limit"));
    }
  }
  return run["checks"].empty() ? "-" : "ok";
}

// The message of a run without a result stands on the standard error already.
void print_run(const Json& run) {
  if (run.contains("error")) {
    return;
  }
  const auto flows = run["flows"].get<std::uint64_t>();
  fmt::print("{}  (seed {}, {} NICs, {} flows)\n\n", label(run), run["seed"].get<std::uint64_t>(),
             run["hosts"].get<std::uint64_t>(), flows);
  fmt::print("  flow completion   min {:.1f}  p50 {:.1f}  p99 {:.1f}  max {:.1f} us\n",
             number(run, "min_fct_us"), number(run, "p50_fct_us"), number(run, "p99_fct_us"),
             number(run, "tail_fct_us"));
  if (run["failed"].get<std::uint64_t>() != 0) {
    fmt::print("  failed            {} of {} flows\n", run["failed"].get<std::uint64_t>(),
               run["flows"].get<std::uint64_t>());
  }
  if (run.contains("groups")) {
    for (const auto& [name, group] : run["groups"].items()) {
      fmt::print(
          "    {:<15} min {:.1f}  p50 {:.1f}  p99 {:.1f}  p99.9 {:.1f}  max {:.1f} us  ({} "
          "flows)\n",
          name, number(group, "min_us"), number(group, "p50_us"), number(group, "p99_us"),
          number(group, "p999_us"), number(group, "max_us"), group["flows"].get<std::uint64_t>());
    }
  }
  print_end(run);
  print_slowdown(run);
  fmt::print("  goodput           {:.1f} Gb/s together, Jain index {:.5f}\n",
             number(run, "goodput_gbps"), number(run, "jain"));
  fmt::print("  packets           {} new, {} retransmitted, {} trimmed, {} marked, {} timeouts\n",
             run["new_packets"].get<std::uint64_t>(), run["retransmitted"].get<std::uint64_t>(),
             run["trimmed"].get<std::uint64_t>(), run["marked"].get<std::uint64_t>(),
             run["timeouts"].get<std::uint64_t>());
  for (const auto& [reason, count] : run["dropped"].items()) {
    fmt::print("  dropped           {} by {}\n", count.get<std::uint64_t>(), reason);
  }
  fmt::print("  longest queue     {:.0f} B on {}\n", number(run, "longest_queue_bytes"),
             run["longest_queue_link"].get<std::string>());
  if (run.contains("faults")) {
    const auto time = [](const Json& value) {
      return value.get<double>() < 0 ? std::string("-")
                                     : fmt::format("{:.1f} us", value.get<double>());
    };
    for (const Json& fault : run["faults"]) {
      fmt::print(
          "  fault {:<11} at {:.0f} us: detected after {}, abandoned after {}, last loss after {}, "
          "recovered after {}, {} frames lost\n",
          fault["name"].get<std::string>(), number(fault, "at_us"), time(fault["detected_us"]),
          time(fault["abandoned_us"]), time(fault["last_loss_us"]), time(fault["recovered_us"]),
          fault["lost_frames"].get<std::uint64_t>());
    }
  }
  for (const Json& check : run["checks"]) {
    fmt::print("  {} {:<26} {} ({} {:.4g})\n", check["met"].get<bool>() ? "ok   " : "FAIL ",
               check["what"].get<std::string>(), value_of(check),
               check["at_least"].get<bool>() ? "at least" : "limit", number(check, "limit"));
  }
  if (run.contains("conservation")) {
    fmt::print("  FAIL  {}\n", run["conservation"].get<std::string>());
  }
  fmt::print("\n  {} events in {:.2f} s of processor time ({:.2f} M/s), {:.0f} MB, digest {}\n",
             run["events"].get<std::uint64_t>(), number(run, "cpu_s"),
             number(run, "events_per_s") / 1e6, number(run, "rss_mb"),
             run["digest"].get<std::string>());
}

// A later setting of a key replaces an earlier one, so they are searched from the end.
void print_runs(const std::vector<SimJob>& jobs, const std::vector<Json>& runs) {
  // The columns: settings in which the jobs differ. What is the same in all says nothing of a row.
  std::vector<std::string> keys;
  for (const SimJob& job : jobs) {
    for (const auto& [key, value] : job.settings) {
      std::set<std::string> values;
      for (const SimJob& other : jobs) {
        const auto it =
            std::find_if(other.settings.rbegin(), other.settings.rend(),
                         [&, name = key](const auto& pair) { return pair.first == name; });
        values.insert(it == other.settings.rend() ? "" : it->second);
      }
      // Variants differ in many settings at once; their names say more than columns would.
      const bool by_variant =
          std::any_of(jobs.begin(), jobs.end(), [](const SimJob& j) { return !j.variant.empty(); });
      if (values.size() > 1 && !by_variant &&
          std::find(keys.begin(), keys.end(), key) == keys.end()) {
        keys.push_back(key);
      }
    }
  }
  std::size_t width = 20;
  for (const Json& run : runs) {
    if (!run.contains("error")) {
      width = std::max(width, label(run).size());
    }
  }
  fmt::print("{:<{}}", "scenario", width + 1);
  // "transport.paths" is "paths" here: columns are narrow.
  for (const std::string& key : keys) {
    fmt::print(" {:>14}", key.substr(key.rfind('.') + 1));
  }
  fmt::print(" {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>8} {:>9} {:>7}  {}\n", "min us", "p50 us",
             "p99 us", "all us", "ideal us", "ratio", "jain", "rtx", "cpu s", "bounds");
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Json& run = runs[i];
    if (run.contains("error")) {
      continue;
    }
    fmt::print("{:<{}}", label(run), width + 1);
    for (const std::string& key : keys) {
      const auto it = std::find_if(jobs[i].settings.rbegin(), jobs[i].settings.rend(),
                                   [&](const auto& pair) { return pair.first == key; });
      fmt::print(" {:>14}", it == jobs[i].settings.rend() ? "-" : it->second);
    }
    const std::string ratio =
        run["ratio"].is_null() ? "-" : fmt::format("{:.3f}", number(run, "ratio"));
    fmt::print(" {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>7} {:>8.5f} {:>9} {:>7.2f}  {}\n",
               number(run, "min_fct_us"), number(run, "p50_fct_us"), number(run, "p99_fct_us"),
               number(run, "makespan_us"), number(run, "ideal_us"), ratio, number(run, "jain"),
               run["retransmitted"].get<std::uint64_t>(), number(run, "cpu_s"), verdict_on(run));
  }
}

}  // namespace weft::cli
