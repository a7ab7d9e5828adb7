// Owns the life of a grid's runs.
//
// A grid has many runs, and each is a function of its text, its settings and this program. So
// results are kept in a file by a key made of these, and a call runs only what is not known yet: a
// grid that was interrupted goes on where it was.
#include "emu/cli/sim/grid_run.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <thread>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/output.hpp"
#include "emu/cli/sim/grid_report.hpp"
#include "emu/cli/sim/grid_verdict.hpp"
#include "emu/cli/sim/runner.hpp"
#include "emu/cli/write_file.hpp"
#include "emu/fabric/topology.hpp"
#include "emu/fabric/yaml_reader.hpp"
#include "emu/scenarios/scenarios.hpp"

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;
using sim::Grid;
using sim::GridCell;

// How many cells run without --cells. A user who names cells, or asks for the list, means all that
// match.
constexpr std::size_t kDefaultCells = 24;

int usage(const std::string& text) {
  complain("weft sim: {}\n", text);
  return kUsage;
}

// One cell with one policy. The pointers are into the Grid, which must not move or change from then
// on.
struct PlannedRun {
  const GridCell* cell = nullptr;
  const sim::GridPolicy* policy = nullptr;
  std::string key;  // the same only for the same run of the same program
};

// A hash of the running program: results of another build say nothing about this one, for a change
// of the transport changes its times and not its settings.
std::string program_hash() {
  std::ifstream in("/proc/self/exe", std::ios::binary);
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  std::vector<char> buffer(1 << 20);
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0) {
    hash ^= sim::fnv1a(std::string(buffer.data(), static_cast<std::size_t>(in.gcount())));
    hash *= 0x9E3779B97F4A7C15ULL;
  }
  return fmt::format("{:016x}", hash);
}

// Part of a run's key: a result counts as known only if program, cell and settings are the same.
std::string text_of_settings(const sim::Settings& settings) {
  std::string text;
  for (const auto& [key, value] : settings) {
    text += key + "=" + value + "\n";
  }
  return text;
}

Result<Grid> load_grid(const std::string& spec) {
  if (spec.empty()) {
    return sim::read_grid("grid.yaml", std::string(scenarios::built_in_grid()));
  }
  const auto text = fabric::read_text_file(spec);
  if (!text) {
    return tl::unexpected<Error>(text.error());
  }
  return sim::read_grid(spec, *text);
}

// Reduces the grid to the cells and policies that the options ask for. Returns what is wrong with
// the options, or an empty text.
std::string choose(const GridOptions& options, Grid& grid) {
  std::erase_if(grid.cells, [&](const GridCell& cell) {
    return (!options.half.empty() && cell.half != options.half) ||
           (!options.only.empty() && !fabric::matches(options.only, cell.name));
  });
  if (grid.cells.empty()) {
    return "no cell of the grid is called '" + options.only +
           "'; `weft sim --grid --list` shows them";
  }
  if (!options.policies.empty()) {
    for (const std::string& name : options.policies) {
      if (std::none_of(grid.policies.begin(), grid.policies.end(),
                       [&](const auto& policy) { return policy.name == name; })) {
        return "the grid has no policy '" + name + "'";
      }
    }
    // The first policy stays in any case: it is the one that is judged.
    std::erase_if(grid.policies, [&, judged = grid.policies.front().name](const auto& policy) {
      return policy.name != judged && std::find(options.policies.begin(), options.policies.end(),
                                                policy.name) == options.policies.end();
    });
  }
  std::size_t count = options.only.empty() && !options.list ? kDefaultCells : grid.cells.size();
  if (options.cells == "all") {
    count = grid.cells.size();
  } else if (!options.cells.empty()) {
    const char* const end = options.cells.data() + options.cells.size();
    const auto [read, status] = std::from_chars(options.cells.data(), end, count);
    if (status != std::errc{} || read != end || count == 0) {
      return "--cells takes a number or all, not '" + options.cells + "'";
    }
  }
  std::uint64_t seed = grid.seed;
  if (!options.seed.empty()) {
    const char* const end = options.seed.data() + options.seed.size();
    const auto [read, status] = std::from_chars(options.seed.data(), end, seed);
    if (status != std::errc{} || read != end) {
      return "--seed takes a number, not '" + options.seed + "'";
    }
  }
  grid.cells = sim::sample(grid.cells, count, seed);
  return {};
}

// The policies of a cell one after the other: a grid that is cut short has whole cells to compare.
std::vector<PlannedRun> plan_runs(const Grid& grid) {
  const std::string program = program_hash();
  std::vector<PlannedRun> runs;
  for (const GridCell& cell : grid.cells) {
    for (const sim::GridPolicy& policy : grid.policies) {
      runs.push_back({&cell, &policy,
                      fmt::format("{:016x}", sim::fnv1a(program + "\n" + cell.text + "\n" +
                                                        text_of_settings(cell.set) +
                                                        text_of_settings(policy.set)))});
    }
  }
  return runs;
}

// Lines of earlier calls by their keys. A last line that was cut short does not parse and is left
// out; so are runs with an error, which are tried again.
std::map<std::string, Json> read_lines(const std::string& path) {
  std::map<std::string, Json> lines;
  std::ifstream in(path);
  for (std::string text; std::getline(in, text);) {
    Json line = Json::parse(text, nullptr, false);
    if (line.is_object() && line.contains("key") && line["key"].is_string() &&
        !line.contains("error")) {
      const auto key = line["key"].get<std::string>();  // before what it is in moves away
      lines[key] = std::move(line);
    }
  }
  return lines;
}

// The policy's settings come last, and so win over those of the condition.
SimJob job_of(const PlannedRun& run) {
  SimJob job;
  job.file_name = run.cell->name;
  job.text = run.cell->text;
  job.settings = run.cell->set;
  job.settings.insert(job.settings.end(), run.policy->set.begin(), run.policy->set.end());
  return job;
}

std::string shown(double value) {
  return std::isfinite(value) ? fmt::format("{:.3g}", value) : "unfinished";
}

void print_judgement(const Grid& grid, const GridJudgement& judgement) {
  fmt::print("{:<64} {:>12} {:>12} {:<14} {:>7}  {}\n", "cell", grid.policies.front().name, "best",
             "by", "x best", "half");
  std::vector<GridComparison> order = judgement.comparisons;
  // The worst first: what has to be looked at must not be cut off.
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.of_best() > b.of_best(); });
  constexpr std::size_t kShown = 40;
  for (std::size_t i = 0; i < std::min(order.size(), kShown); ++i) {
    const GridComparison& it = order[i];
    fmt::print("{:<64} {:>12} {:>12} {:<14} {:>7}  {}\n", it.cell->name + " " + it.metric,
               std::isfinite(it.value) ? fmt::format("{:.2f}", it.value) : "unfinished",
               fmt::format("{:.2f}", it.best), it.best_policy, shown(it.of_best()), it.cell->half);
  }
  if (order.size() > kShown) {
    fmt::print("... and {} better ones\n", order.size() - kShown);
  }
  fmt::print("\n");
  for (const GridVerdict& verdict : judgement.verdicts) {
    if (verdict.cells == 0) {
      fmt::print("-     {}: no cell of these\n", verdict.what);
      continue;
    }
    fmt::print("{} {}: {} of {} cells {}; worst {} in {}\n", verdict.holds ? "ok   " : "MISSED",
               verdict.what, verdict.met, verdict.cells, verdict.limit, shown(verdict.worst),
               verdict.worst_cell);
  }
}

void write_reports(const GridOptions& options, const Grid& grid, const GridJudgement& judgement) {
  // The document says how it was made. What decides about its figures belongs to that; --jobs and
  // the like do not.
  std::string command = "weft sim --grid";
  for (const auto& [option, value] :
       {std::pair{"", options.spec}, std::pair{"--half ", options.half},
        std::pair{"--cells ", options.cells}, std::pair{"--only ", options.only},
        std::pair{"--seed ", options.seed}}) {
    command += value.empty() ? "" : " " + (option + value);
  }
  for (const std::string& policy : options.policies) {
    command += " --policy " + policy;
  }
  write_file(options.report + "/grid.html", grid_page(grid, judgement));
  write_file(options.report + "/grid.svg", grid_heat_map(grid, judgement, false));
  write_file(options.report + "/grid.md",
             grid_document(grid, judgement, command + " --report DIR"));
  if (!options.json) {
    fmt::print("\nreport: {0}/grid.html, grid.md and grid.svg; results: {0}/grid.jsonl\n",
               options.report);
  }
}

// Results of earlier calls in `directory`, and the file that those of this call are appended to.
// Without a directory nothing is known and nothing kept. Throws std::runtime_error.
struct KeptResults {
  std::map<std::string, Json> known;
  std::ofstream file;

  explicit KeptResults(const std::string& directory) {
    if (directory.empty()) {
      return;
    }
    std::filesystem::create_directories(directory);
    const std::string path = directory + "/grid.jsonl";
    // Without grid.jsonl, pages of these names are somebody else's.
    for (const char* const name : {"grid.html", "grid.svg", "grid.md"}) {
      const std::string other = directory + "/" + name;
      if (!std::filesystem::exists(path) && std::filesystem::exists(other)) {
        throw std::runtime_error(other +
                                 " is not of a grid and would be overwritten: move it, or choose "
                                 "another --report");
      }
    }
    known = read_lines(path);
    std::ifstream before(path, std::ios::binary | std::ios::ate);
    // A call that was killed may have left half a line. It gets its line end, so that read_lines()
    // drops it and nothing else.
    const bool cut = before && before.tellg() > 0 && before.seekg(-1, std::ios::end).get() != '\n';
    file.open(path, std::ios::app);
    if (cut) {
      file << "\n";
    }
    if (!file) {
      throw std::runtime_error(path + ": cannot be written");
    }
  }
};

// Runs what is not known yet. `lines` gets the results of all runs, known ones first: judge_grid()
// goes by names, not by order. False if a run gave no result.
bool run_missing(const GridOptions& options, const std::vector<PlannedRun>& runs, KeptResults& kept,
                 std::vector<Json>& lines) {
  std::vector<SimJob> jobs;
  std::vector<const PlannedRun*> of_job;
  for (const PlannedRun& run : runs) {
    if (const auto it = kept.known.find(run.key); it != kept.known.end()) {
      lines.push_back(it->second);
    } else {
      jobs.push_back(job_of(run));
      of_job.push_back(&run);
    }
  }
  bool good = true;
  // Written at once: what has run is never lost.
  const auto take = [&](std::size_t index, const Json& json) {
    const PlannedRun& run = *of_job[index];
    Json line = grid_line(*run.cell, run.policy->name, json);
    line["key"] = run.key;
    if (line.contains("error")) {
      complain("weft sim: {} with {}: {}\n", run.cell->name, run.policy->name,
               line["error"].get<std::string>());
      good = false;
    }
    if (kept.file.is_open()) {
      kept.file << text_of(line) << "\n" << std::flush;
    }
    if (options.json) {
      fmt::print("{}\n", text_of(line));
      flush_output();
    } else if (isatty(STDERR_FILENO) != 0) {
      complain("\r\033[K{}/{} runs", index + 1, jobs.size());
    }
    lines.push_back(std::move(line));
  };
  run_jobs(jobs,
           options.jobs != 0 ? options.jobs : std::max(std::thread::hardware_concurrency(), 1U),
           take);
  if (!options.json && isatty(STDERR_FILENO) != 0) {
    complain("\r\033[K");
  }
  return good;
}

void print_cells(const Grid& grid) {
  for (const GridCell& cell : grid.cells) {
    fmt::print("{:<9} {}\n", cell.half, cell.name);
  }
  for (const sim::GridGap& gap : grid.gaps) {
    fmt::print("{:<9} {} ({})\n", "none", gap.name, gap.reason);
  }
}

}  // namespace

int run_grid(const GridOptions& options) {
  auto grid = load_grid(options.spec);
  if (!grid) {
    return usage(grid.error().message);
  }
  const std::size_t all = grid->cells.size();
  if (const std::string problem = choose(options, *grid); !problem.empty()) {
    return usage(problem);
  }
  if (options.list) {
    print_cells(*grid);
    return kSuccess;
  }
  const std::vector<PlannedRun> runs = plan_runs(*grid);
  KeptResults kept(options.report);
  if (!options.json) {
    const auto known = std::count_if(runs.begin(), runs.end(), [&](const PlannedRun& run) {
      return kept.known.contains(run.key);
    });
    fmt::print(
        "{} of {} cells ({} more cannot exist) with {} policies: {} runs, {} of them known\n",
        grid->cells.size(), all, grid->gaps.size(), grid->policies.size(), runs.size(), known);
    flush_output();
  }
  std::vector<Json> lines;
  bool good = run_missing(options, runs, kept, lines);
  const GridJudgement judgement = judge_grid(*grid, grid->cells, lines);
  if (!options.json) {
    print_judgement(*grid, judgement);
  }
  if (!options.report.empty()) {
    write_reports(options, *grid, judgement);
  }
  for (const GridVerdict& verdict : judgement.verdicts) {
    good = good && (verdict.cells == 0 || verdict.holds);
  }
  return good ? kSuccess : kFailure;
}

}  // namespace weft::cli
