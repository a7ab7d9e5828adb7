// Owns `weft sim`: scenarios of the emulated network in virtual time.
//
// Names, sweeps, seeds and variants are multiplied into jobs here; sim/runner.cpp runs them, each
// in a process of its own if there are several, and the results come back as JSON in the order of
// the jobs.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/output.hpp"
#include "emu/cli/sim/grid_run.hpp"
#include "emu/cli/sim/runner.hpp"
#include "emu/cli/sim/table.hpp"
#include "emu/fabric/yaml_reader.hpp"
#include "emu/scenarios/scenarios.hpp"

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> names;
  std::vector<std::string> set;
  std::vector<std::string> sweep;
  std::string variant;
  std::string seed;
  std::string report;
  std::string trace;
  std::string flows;
  std::string half;
  std::string only;
  std::string cells;
  std::vector<std::string> policies;
  bool grid = false;
  unsigned repeat = 1;
  unsigned jobs = 0;  // at the same time; 0: one for each core
  bool json = false;
  bool list = false;
  bool all = false;
  bool variants = false;
};

int usage(const std::string& text) {
  complain("weft sim: {}\n", text);
  return kUsage;
}

// A built-in scenario that cannot be read shows its error instead of a title.
int list_scenarios() {
  for (const auto& [name, text] : scenarios::built_in_scenarios()) {
    const auto scenario = sim::read_scenario(std::string(name), std::string(text), {}, "");
    fmt::print("{:<24} {}\n", name, scenario ? scenario->title : scenario.error().message);
    for (std::size_t i = 0; scenario && i < scenario->variants.size(); ++i) {
      fmt::print("{:<24}   variant {}\n", "", scenario->variants[i].name);
    }
  }
  return kSuccess;
}

// The built-in scenario of that name, or else the file: a file called like a built-in scenario has
// to be given with "./".
Result<SimJob> find_scenario(const std::string& name) {
  SimJob job;
  job.file_name = name;
  for (const auto& [known, text] : scenarios::built_in_scenarios()) {
    if (known == name) {
      job.file_name += ".yaml";
      job.text = text;
      return job;
    }
  }
  if (!std::filesystem::exists(name)) {
    return fail(
        ErrorCode::not_found,
        fmt::format(
            "there is no scenario and no file called '{}'; `weft sim --list` shows the scenarios",
            name));
  }
  auto text = fabric::read_text_file(name);
  if (!text) {
    return tl::unexpected<Error>(text.error());
  }
  job.text = std::move(*text);
  job.directory = std::filesystem::path(name).parent_path().string();
  return job;
}

// "key=value" in two. The value may be empty and may hold further equals signs.
Result<std::pair<std::string, std::string>> split(const std::string& text, const char* option) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} needs key=value, found '{}'", option, text));
  }
  return std::pair{text.substr(0, equals), text.substr(equals + 1)};
}

// Every combination of the sweeps' values on top of `base`.
Result<std::vector<sim::Settings>> combinations(const std::vector<std::string>& sweeps,
                                                sim::Settings base) {
  std::vector<sim::Settings> all{std::move(base)};
  std::set<std::string> swept;
  for (const std::string& sweep : sweeps) {
    const auto pair = split(sweep, "--sweep");
    if (!pair) {
      return tl::unexpected<Error>(pair.error());
    }
    if (pair->second.empty()) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("--sweep {} needs values: {}a,b,c", sweep, sweep));
    }
    if (!swept.insert(pair->first).second) {
      return fail(
          ErrorCode::invalid_argument,
          fmt::format("--sweep {} is given twice; name all its values at once", pair->first));
    }
    std::vector<sim::Settings> next;
    for (const sim::Settings& before : all) {
      // Also an empty value between two commas is one.
      for (std::size_t at = 0; at <= pair->second.size();) {
        const std::size_t comma = std::min(pair->second.find(',', at), pair->second.size());
        next.push_back(before);
        next.back().emplace_back(pair->first, pair->second.substr(at, comma - at));
        at = comma + 1;
      }
    }
    all = std::move(next);
  }
  return all;
}

// The run itself, and its variants if they are asked for. --variant gives that one alone. What the
// command line sets comes after a variant's settings, and so wins over them.
Result<std::vector<SimJob>> with_variants(const SimJob& job, const Options& options) {
  std::vector<SimJob> jobs;
  if (options.variant.empty()) {
    jobs.push_back(job);
  }
  if (!options.variants && options.variant.empty()) {
    return jobs;
  }
  const auto scenario = sim::read_scenario(job.file_name, job.text, job.settings, job.directory);
  if (!scenario) {
    return tl::unexpected<Error>(scenario.error());
  }
  for (const sim::Variant& variant : scenario->variants) {
    if (options.variants || variant.name == options.variant) {
      SimJob other = job;
      other.variant = variant.name;
      other.settings.insert(other.settings.begin(), variant.set.begin(), variant.set.end());
      other.bounds = variant.bounds;
      other.use_variant_bounds = true;
      jobs.push_back(std::move(other));
    }
  }
  if (jobs.empty()) {
    return fail(ErrorCode::not_found,
                fmt::format("{} has no variant '{}'; `weft sim --list` shows them", job.file_name,
                            options.variant));
  }
  return jobs;
}

// Names, settings of sweeps, seeds, variants: nested in this order, which is that of the output.
Result<std::vector<SimJob>> plan(const Options& options) {
  sim::Settings base;
  for (const std::string& text : options.set) {
    const auto pair = split(text, "--set");
    if (!pair) {
      return tl::unexpected<Error>(pair.error());
    }
    base.push_back(*pair);
  }
  if (!options.seed.empty()) {
    base.emplace_back("seed", options.seed);
  }
  const auto settings = combinations(options.sweep, base);
  if (!settings) {
    return tl::unexpected<Error>(settings.error());
  }
  std::vector<SimJob> jobs;
  for (const std::string& name : options.names) {
    const auto found = find_scenario(name);
    if (!found) {
      return tl::unexpected<Error>(found.error());
    }
    for (const sim::Settings& each : *settings) {
      for (unsigned n = 0; n < options.repeat; ++n) {
        SimJob job = *found;
        job.settings = each;
        if (n > 0) {  // further seeds follow from the first one
          const auto first = sim::read_scenario(job.file_name, job.text, each, job.directory);
          if (!first) {
            return tl::unexpected<Error>(first.error());
          }
          job.settings.emplace_back("seed", std::to_string(first->seed + n));
        }
        auto group = with_variants(job, options);
        if (!group) {
          return tl::unexpected<Error>(group.error());
        }
        jobs.insert(jobs.end(), group->begin(), group->end());
      }
    }
  }
  return jobs;
}

// A grid decides itself what is run; options that would change that are refused, not ignored.
int grid(const Options& options) {
  if (options.names.size() > 1 || options.all || options.variants || options.repeat > 1 ||
      !options.variant.empty() || !options.set.empty() || !options.sweep.empty() ||
      !options.trace.empty() || !options.flows.empty()) {
    return usage(
        "--grid takes at most one file, and of the other options --half, --only, --cells, "
        "--policy, --seed, --jobs, --json, --list and --report");
  }
  return run_grid({.spec = options.names.empty() ? "" : options.names.front(),
                   .half = options.half,
                   .only = options.only,
                   .policies = options.policies,
                   .cells = options.cells,
                   .seed = options.seed,
                   .report = options.report,
                   .jobs = options.jobs,
                   .json = options.json,
                   .list = options.list});
}

// Decides which files each run writes beside its result, and makes the directories. Returns what is
// wrong with the options, or an empty text.
std::string name_files(const Options& options, std::vector<SimJob>& jobs) {
  for (const auto& [option, file] :
       {std::pair{"--trace", &options.trace}, std::pair{"--flows", &options.flows}}) {
    if (!file->empty() && jobs.size() != 1) {
      return std::string(option) +
             " takes a single run; name one scenario, without --sweep, --repeat and variants";
    }
  }
  jobs.front().trace = options.trace;
  jobs.front().flows = options.flows;
  if (!options.report.empty()) {
    std::filesystem::create_directories(options.report);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      jobs[i].report =
          jobs.size() == 1 ? options.report : fmt::format("{}/run{}", options.report, i);
      std::filesystem::create_directories(jobs[i].report);
    }
  }
  return {};
}

// With --json every result was printed when it came.
void print_for_people(const std::vector<SimJob>& jobs, const std::vector<Json>& results) {
  if (results.size() == 1) {
    print_run(results.front());
  } else {
    print_runs(jobs, results);
  }
  for (const SimJob& job : jobs) {
    if (!job.report.empty()) {
      fmt::print("report: {}/report.html\n", job.report);
    }
  }
}

// The exit code is the worst of all runs: kUsage where a scenario cannot be read, kFailure where a
// bound was missed or a process died.
int run(const Options& given) {
  Options options = given;
  if (options.grid) {
    return grid(options);
  }
  if (!options.half.empty() || !options.only.empty() || !options.cells.empty() ||
      !options.policies.empty()) {
    return usage("--half, --only, --cells and --policy choose among cells: only with --grid");
  }
  if (options.list) {
    return list_scenarios();
  }
  if (options.all) {
    for (const auto& [name, text] : scenarios::built_in_scenarios()) {
      // The experiments are e1 to e10.
      if (name.starts_with("e")) {
        options.names.emplace_back(name);
      }
    }
    options.variants = true;
  }
  if (options.names.empty()) {
    return usage(
        "name a scenario or a file; `weft sim --list` shows the scenarios, --all runs the ten "
        "experiments");
  }
  auto jobs = plan(options);
  if (!jobs) {
    return usage(jobs.error().message);
  }
  if (const std::string problem = name_files(options, *jobs); !problem.empty()) {
    return usage(problem);
  }
  int exit_code = kSuccess;  // the worse, the larger
  std::vector<Json> results;
  // Called in the order of the jobs, as soon as a result and all before it are there.
  const auto take = [&](std::size_t index, const Json& json) {
    results.push_back(json);
    for (const Json& warning : json.value("warnings", Json::array())) {
      complain("weft sim: warning: {}\n", warning.get<std::string>());
    }
    if (json.contains("error")) {
      complain("weft sim: {}\n", json["error"].get<std::string>());
      exit_code = std::max(exit_code, json.contains("usage") ? kUsage : kFailure);
    } else {
      exit_code = std::max(exit_code, json["within_bound"].get<bool>() ? kSuccess : kFailure);
    }
    if (options.json) {
      fmt::print("{}\n", text_of(json));
      flush_output();
    } else if (jobs->size() > 1 && isatty(STDERR_FILENO) != 0) {
      complain("\r\033[K{}/{} runs", index + 1, jobs->size());
    }
  };
  if (jobs->size() == 1) {
    // In this process, which can show how far the run has come.
    take(0, run_job(jobs->front(), !options.json));
  } else {
    run_jobs(*jobs,
             options.jobs != 0 ? options.jobs : std::max(std::thread::hardware_concurrency(), 1U),
             take);
    if (!options.json && isatty(STDERR_FILENO) != 0) {
      complain("\r\033[K");
    }
  }
  if (!options.json) {
    print_for_people(*jobs, results);
  }
  return exit_code;
}

}  // namespace

void register_sim(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "sim");
  auto options = std::make_shared<Options>();
  command->add_option("scenario", options->names, "Scenarios of --list, or YAML files")
      ->type_name("NAME|FILE");
  command
      ->add_option("--set", options->set,
                   "Replace a value of the scenario, by its dotted path; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--sweep", options->sweep, "Run once for each of these values; repeatable")
      ->type_name("KEY=A,B,C")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--seed", options->seed, "Seed of everything random")->type_name("N");
  command->add_option("--repeat", options->repeat, "Run so often, each time with the next seed")
      ->check(CLI::Range(1U, 100'000U));
  command->add_option("--jobs", options->jobs, "Processes at a time; default: one per core")
      ->check(CLI::Range(0U, 1024U));
  command->add_option("--variant", options->variant, "Run this variant of the scenario instead")
      ->type_name("NAME");
  command->add_flag("--variants", options->variants, "Run all variants of the scenario beside it");
  command->add_flag("--json", options->json, "One JSON object per run and line");
  command->add_option("--report", options->report, "Write report.html into this directory")
      ->type_name("DIR");
  command->add_option("--trace", options->trace, "Write a trace for ui.perfetto.dev into this file")
      ->type_name("FILE");
  command
      ->add_option("--flows", options->flows,
                   "Write a line for each flow into this file; .csv: as a table")
      ->type_name("FILE");
  command->add_flag("--list", options->list, "Show the scenarios that the program knows");
  command->add_flag("--all", options->all, "Run the ten experiments with their variants");
  command->add_flag("--grid", options->grid,
                    "Run cells of the evaluation grid, or of the grid file that is named");
  command->add_option("--cells", options->cells, "With --grid: so many cells by lot, or all")
      ->type_name("N|all");
  command->add_option("--only", options->only, "With --grid: cells with such names (* and ?)")
      ->type_name("PATTERN");
  command->add_option("--half", options->half, "With --grid: only this half of the cells")
      ->check(CLI::IsMember({"tune", "held-out"}));
  command
      ->add_option("--policy", options->policies,
                   "With --grid: compare with this policy only; repeatable")
      ->type_name("NAME")
      ->allow_extra_args(false)
      ->take_all();
  command->callback([options, &work] { work = [options] { return run(*options); }; });
}

}  // namespace weft::cli
