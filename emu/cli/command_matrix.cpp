// Owns `weft matrix`: a command under every bad condition of a network, and one table of where it
// breaks.
//
// A cell is one condition, device and seed. Each runs as a `weft run` of its own (matrix/cell.hpp),
// so that a cell that hangs or crashes takes nothing with it. This file reads the command line into
// a plan and a list of cells, and writes the reports.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/matrix/report.hpp"
#include "emu/cli/matrix/runner.hpp"
#include "emu/cli/matrix/shelf.hpp"
#include "emu/cli/matrix/user_file.hpp"
#include "emu/cli/programs.hpp"
#include "emu/launch/host_environment.hpp"
#include "emu/launch/interrupt.hpp"

namespace weft::cli {
namespace {

struct Options {
  std::string file;  // of the user's own
  std::vector<std::string> conditions;
  std::vector<std::string> devices;
  // Optional because a user's file may give them, too: only what was said replaces that.
  std::optional<std::uint64_t> seeds;
  std::optional<std::uint64_t> first_seed;
  std::size_t copies = 1;
  std::size_t per_host = 1;
  std::size_t jobs = 1;
  int timeout = 60;
  bool list = false;
  bool json = false;
  bool capture = false;
  std::string keep;
  std::string junit;
  std::string markdown;
  std::vector<std::string> words;
};

int print_list() {
  for (const Condition& condition : all_conditions()) {
    fmt::print("{}\n    {}\n    shows: {}\n", condition.name, condition.about, condition.shows);
  }
  return kSuccess;
}

// What is wrong with the command line or the user's file: kUsage. Anything else that is thrown is a
// failure of the run.
struct WrongQuestion : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Refuses a list with two equal words: their cells could not be told apart.
void refuse_twins(const char* option, std::vector<std::string> words) {
  std::ranges::sort(words);
  if (const auto twin = std::ranges::adjacent_find(words); twin != words.end()) {
    throw WrongQuestion(fmt::format("{} names '{}' twice", option, *twin));
  }
}

// What runs in every cell.
MatrixPlan matrix_plan(const Options& options) {
  const auto commands = split_commands(options.words, words_after_dashes());
  if (!commands) {
    throw WrongQuestion(commands.error().message);
  }
  if (commands->size() > 1 && options.copies > 1) {
    throw WrongQuestion(
        fmt::format("-n {} copies a single command, and these are {}: leave one of the two out",
                    options.copies, commands->size()));
  }
  const std::size_t programs = std::max(commands->size(), options.copies);
  MatrixPlan plan{.hosts = (programs + options.per_host - 1) / options.per_host,
                  .timeout = std::chrono::seconds{options.timeout},
                  .capture = options.capture};
  if (plan.hosts > kMaxHosts) {
    throw WrongQuestion(
        fmt::format("{} programs take {} hosts, and a network has at most {}; let --per-host "
                    "programs share one",
                    programs, plan.hosts, kMaxHosts));
  }
  if (options.copies > 1) {
    plan.options.insert(plan.options.end(), {"-n", std::to_string(options.copies)});
  }
  if (options.per_host > 1) {
    plan.options.insert(plan.options.end(), {"--per-host", std::to_string(options.per_host)});
  }
  for (const Words& words : *commands) {
    if (!plan.words.empty()) {
      plan.words.emplace_back(":");
    }
    plan.words.insert(plan.words.end(), words.begin(), words.end());
  }
  return plan;
}

// Consecutive numbers. Refused if they would pass the largest one: wrapped around, they would not
// be what was asked for.
std::vector<std::uint64_t> seeds_of(const Options& options) {
  const std::uint64_t first = options.first_seed.value_or(1);
  const std::uint64_t count = options.seeds.value_or(1);
  if (first > std::numeric_limits<std::uint64_t>::max() - (count - 1)) {
    throw WrongQuestion(
        fmt::format("--first-seed {}: there are no {} seeds from there on", first, count));
  }
  std::vector<std::uint64_t> seeds(count);
  std::iota(seeds.begin(), seeds.end(), first);
  return seeds;
}

// The conditions, devices and seeds of the matrix, from the user's file and the command line, whose
// words win over the file's.
UserMatrix matrix_of(const Options& options, std::size_t hosts) {
  UserMatrix matrix;
  if (!options.file.empty()) {
    auto read = read_user_matrix(options.file, hosts);
    if (!read) {
      throw WrongQuestion(read.error().message);
    }
    matrix = std::move(*read);
  }
  if (matrix.conditions.empty()) {
    matrix.conditions = all_conditions();
  }
  refuse_twins("--conditions", options.conditions);
  for (const std::string& name : options.conditions) {
    if (std::ranges::find(matrix.conditions, name, &Condition::name) == matrix.conditions.end()) {
      throw WrongQuestion(fmt::format(
          "there is no condition '{}'; {}", name,
          options.file.empty() ? "`weft matrix --list` lists them" : "not in " + options.file));
    }
  }
  if (!options.conditions.empty()) {
    std::erase_if(matrix.conditions, [&](const Condition& condition) {
      return std::ranges::find(options.conditions, condition.name) == options.conditions.end();
    });
  }
  refuse_twins("--device", options.devices);
  for (const std::string& device : options.devices) {
    if (const auto kind = launch::parse_device_kind(device); !kind) {
      throw WrongQuestion(kind.error().message);
    }
  }
  if (!options.devices.empty()) {
    matrix.devices = options.devices;
  } else if (matrix.devices.empty()) {
    matrix.devices = {launch::default_device()};
  }
  if (options.seeds || options.first_seed || matrix.seeds.empty()) {
    matrix.seeds = seeds_of(options);
  }
  return matrix;
}

// The cells point to conditions of the matrix, which has to outlive them.
std::vector<Cell> cells_of(const UserMatrix& matrix) {
  std::vector<Cell> cells;
  // The order of the table: a condition's cells stand side by side.
  for (const Condition& condition : matrix.conditions) {
    for (const std::string& device : matrix.devices) {
      for (const std::uint64_t seed : matrix.seeds) {
        cells.push_back({&condition, device, seed});
      }
    }
  }
  return cells;
}

// A file for results. That it cannot be opened is an error before anything has run.
class ReportFile {
 public:
  explicit ReportFile(std::string path) : path_(std::move(path)) {
    if (!path_.empty()) {
      file_.open(path_, std::ios::binary | std::ios::trunc);
      if (!file_) {
        throw std::runtime_error("cannot write '" + path_ + "': " + std::strerror(errno));
      }
    }
  }
  // False, and says why: what is lost is this report, not the others.
  [[nodiscard]] bool write(const std::string& text) {
    if (path_.empty() || file_ << text << std::flush) {
      return true;
    }
    complain("weft matrix: cannot write '{}': {}\n", path_, std::strerror(errno));
    return false;
  }

 private:
  std::string path_;
  std::ofstream file_;
};

// The results on standard output, as people or programs want them. False: it cannot be written.
bool print_results(const Options& options, const std::vector<CellResult>& results) {
  const std::string text =
      options.json ? matrix_json(results) : matrix_table(results) + matrix_failures(results);
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    complain("weft matrix: cannot write the results: {}\n", std::strerror(errno));
    return false;
  }
  return true;
}

// The report files are opened first: a run of an hour must not end with a report that cannot be
// written.
int run_cells(const Options& options) {
  const MatrixPlan plan = matrix_plan(options);
  const UserMatrix matrix = matrix_of(options, plan.hosts);
  ReportFile junit(options.junit);
  ReportFile markdown(options.markdown);
  const launch::Interruptible interruptible;
  const Shelf shelf(options.keep);
  const auto results = MatrixRunner(plan, cells_of(matrix), options.jobs, shelf).run();
  bool told = print_results(options, results);
  told = junit.write(matrix_junit(results)) && told;
  told = markdown.write(matrix_markdown(results)) && told;
  if (const int signal = launch::pending_interrupt(); signal != 0) {
    return 128 + signal;
  }
  return told && std::ranges::none_of(results,
                                      [](const CellResult& r) { return r.verdict == Verdict::red; })
             ? kSuccess
             : kFailure;
}

// A first word that is a YAML file is the user's matrix, and no word of a command.
int run_matrix(Options options) {
  if (options.list) {
    return print_list();
  }
  if (!options.words.empty() &&
      (options.words.front().ends_with(".yaml") || options.words.front().ends_with(".yml"))) {
    options.file = options.words.front();
    options.words.erase(options.words.begin());
  }
  try {
    return run_cells(options);
  } catch (const WrongQuestion& wrong) {
    complain("weft matrix: {}\n", wrong.what());
    return kUsage;
  }
}

}  // namespace

void register_matrix(CLI::App& program, Work& work) {
  CLI::App* const matrix = add_command(program, "matrix");
  const auto options = std::make_shared<Options>();
  matrix->add_option("--conditions", options->conditions, "Only these; default: all of --list")
      ->delimiter(',');
  matrix->add_flag("--list", options->list, "The conditions, and which mistakes each shows");
  matrix
      ->add_option("--device", options->devices, launch::known_devices() + "; several with commas")
      ->delimiter(',')
      ->default_str(launch::default_device());
  matrix->add_option("--seeds", options->seeds, "Runs of each, with other seeds of the network")
      ->check(CLI::Range(1, 10000))
      ->default_str("1");
  matrix->add_option("--first-seed", options->first_seed, "The first of them")->default_str("1");
  matrix->add_option("-n,--copies", options->copies, "Copies of a single command")
      ->check(CLI::Range(1, 1024));
  matrix->add_option("--per-host", options->per_host, "Programs that share a host")
      ->check(CLI::Range(1, 255));
  matrix->add_option("--timeout", options->timeout, "Seconds; what takes longer hangs, and is red")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  matrix->add_option("-j,--jobs", options->jobs, "Cells at a time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  matrix->add_option("--keep", options->keep,
                     "Folder for the output of all cells; default: one of red cells only");
  matrix->add_flag("--capture", options->capture,
                   "Capture what passes the network; those of the kept cells stay");
  matrix->add_option("--junit", options->junit, "File for the results as JUnit's XML");
  matrix->add_option("--markdown", options->markdown,
                     "File for the results as a page, for job summaries");
  matrix->add_flag("--json", options->json, "A JSON object for each cell instead of the table");
  matrix
      ->add_option("command", options->words,
                   "A FILE.yaml with a matrix of your own, if wanted; after `--` a command, or "
                   "several with `:` between")
      ->expected(-1);
  matrix->callback([&work, options] { work = [options] { return run_matrix(*options); }; });
}

}  // namespace weft::cli
