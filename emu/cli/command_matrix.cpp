// Owns `weft matrix`: a command under every bad condition of a network, and one table of where it
// breaks.
#include <fmt/core.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/matrix/report.hpp"
#include "emu/cli/programs.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/launch/host_environment.hpp"
#include "emu/launch/interrupt.hpp"
#include "srd/base/joined.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kBetweenLooks{10};

struct Options {
  std::vector<std::string> conditions;
  std::vector<std::string> devices{"efa"};
  std::size_t seeds = 1;
  std::uint64_t first_seed = 1;
  std::size_t copies = 1;
  std::size_t per_host = 1;
  std::size_t jobs = 1;
  int timeout = 60;
  bool list = false;
  bool json = false;
  std::string keep;
  std::string junit;
  std::string markdown;
  std::vector<std::string> words;
};

// Where the cells' folders are. Without a place that the user named only those of red cells stay,
// and the place goes if there are none.
class Shelf {
 public:
  explicit Shelf(const std::string& wish) : keeps_all_(!wish.empty()) {
    if (keeps_all_) {
      std::error_code error;
      fs::create_directories(wish, error);
      path_ = error ? wish : fs::absolute(wish).string();
      if (error || ::access(wish.c_str(), W_OK) != 0) {
        throw std::runtime_error(
            fmt::format("--keep '{}': {}", wish, error ? error.message() : std::strerror(errno)));
      }
      return;
    }
    path_ = (fs::temp_directory_path() / "weft-matrix-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) {
      throw std::runtime_error("cannot make '" + path_ + "': " + std::strerror(errno));
    }
  }
  ~Shelf() {
    if (!keeps_all_) {
      std::error_code error;
      fs::remove(path_, error);  // only an empty one
    }
  }
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;

  [[nodiscard]] std::string place_for(const Cell& cell) const { return path_ + "/" + cell.name(); }
  // A cell is over.
  void put(CellResult& result, const std::string& folder) const {
    if (!keeps_all_ && result.verdict != Verdict::red) {
      std::error_code error;
      fs::remove_all(folder, error);
      result.log.clear();
    }
  }

 private:
  bool keeps_all_;
  std::string path_;
};

class Runner {
 public:
  Runner(MatrixPlan plan, const std::vector<Cell>& cells, std::size_t jobs, const Shelf& shelf)
      : plan_(std::move(plan)), jobs_(jobs), shelf_(shelf) {
    for (const Cell& cell : cells) {
      results_.push_back({.cell = cell});
    }
  }

  // Until all have ended; after an interrupt none is started any more.
  [[nodiscard]] std::vector<CellResult> run() {
    while (next_ < results_.size() || !running_.empty()) {
      if (const int signal = launch::pending_interrupt(); signal != 0) {
        next_ = results_.size();
        for (auto& [place, cell] : running_) {
          cell->interrupt();
        }
      }
      while (next_ < results_.size() && running_.size() < jobs_) {
        start(next_++);
      }
      running_.remove_if([this](const auto& one) { return finish(one.first, *one.second); });
      std::this_thread::sleep_for(kBetweenLooks);
    }
    return std::move(results_);
  }

 private:
  void start(std::size_t place) {
    CellResult& result = results_[place];
    if (result.cell.condition->needs_peer && plan_.hosts < 2) {
      result.verdict = Verdict::skipped;
      result.reason = "needs two hosts";
      say(result);
      return;
    }
    running_.emplace_back(
        place, std::make_unique<RunningCell>(plan_, result.cell, shelf_.place_for(result.cell)));
  }
  bool finish(std::size_t place, RunningCell& cell) {
    if (!cell.look()) {
      return false;
    }
    results_[place] = cell.result();
    shelf_.put(results_[place], cell.folder());
    say(results_[place]);
    return true;
  }
  void say(const CellResult& result) {
    complain(
        "[{}/{}] {}, {}, seed {}: {}{}\n", ++done_, results_.size(), result.cell.condition->name,
        result.cell.device, result.cell.seed, matrix_word(result),
        result.verdict == Verdict::red || result.reason.empty() ? "" : " (" + result.reason + ")");
  }

  MatrixPlan plan_;
  std::size_t jobs_;
  const Shelf& shelf_;
  std::vector<CellResult> results_;
  std::list<std::pair<std::size_t, std::unique_ptr<RunningCell>>> running_;
  std::size_t next_ = 0;
  std::size_t done_ = 0;
};

int print_list() {
  for (const Condition& condition : all_conditions()) {
    fmt::print("{}\n    {}\n    shows: {}\n", condition.name, condition.about, condition.shows);
  }
  return kSuccess;
}

// What is wrong with the question, or nothing.
std::optional<std::string> wrong_with(const Options& options, std::size_t commands) {
  for (const std::string& name : options.conditions) {
    if (find_condition(name) == nullptr) {
      return fmt::format("there is no condition '{}'; `weft matrix --list` lists them", name);
    }
  }
  for (const std::string& device : options.devices) {
    if (const auto kind = launch::parse_device_kind(device); !kind) {
      return kind.error().message;
    }
  }
  if (commands > 1 && options.copies > 1) {
    return fmt::format("-n {} copies a single command, and these are {}: leave one of the two out",
                       options.copies, commands);
  }
  return std::nullopt;
}

std::vector<Cell> cells_of(const Options& options) {
  std::vector<Cell> cells;
  for (const Condition& condition : all_conditions()) {
    const bool wanted =
        options.conditions.empty() ||
        std::ranges::find(options.conditions, condition.name) != options.conditions.end();
    for (const std::string& device : options.devices) {
      for (std::uint64_t i = 0; wanted && i < options.seeds; ++i) {
        cells.push_back({&condition, device, options.first_seed + i});
      }
    }
  }
  return cells;
}

// A report that cannot be written is an error before anything has run.
std::ofstream open_report(const std::string& path) {
  std::ofstream file;
  if (!path.empty()) {
    file.open(path, std::ios::binary | std::ios::trunc);
    if (!file) {
      throw std::runtime_error("cannot write '" + path + "': " + std::strerror(errno));
    }
  }
  return file;
}

void write_report(std::ofstream& file, const std::string& path, const std::string& text) {
  if (!path.empty() && !(file << text << std::flush)) {
    throw std::runtime_error("cannot write '" + path + "': " + std::strerror(errno));
  }
}

int run_matrix(const Options& options) {
  if (options.list) {
    return print_list();
  }
  const auto commands = split_commands(options.words, words_after_dashes());
  const auto wrong = commands ? wrong_with(options, commands->size()) : commands.error().message;
  if (wrong) {
    complain("weft matrix: {}\n", *wrong);
    return kUsage;
  }
  const std::size_t programs = std::max(commands->size(), options.copies);
  MatrixPlan plan{.hosts = (programs + options.per_host - 1) / options.per_host,
                  .timeout = std::chrono::seconds{options.timeout}};
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
  std::ofstream junit = open_report(options.junit);
  std::ofstream markdown = open_report(options.markdown);
  const launch::Interruptible interruptible;
  const Shelf shelf(options.keep);
  const auto results = Runner(plan, cells_of(options), options.jobs, shelf).run();
  write_report(junit, options.junit, matrix_junit(results));
  write_report(markdown, options.markdown, matrix_markdown(results));
  fmt::print(
      "{}", options.json ? matrix_json(results) : matrix_table(results) + matrix_failures(results));
  if (const int signal = launch::pending_interrupt(); signal != 0) {
    return 128 + signal;
  }
  return std::ranges::any_of(results, [](const CellResult& r) { return r.verdict == Verdict::red; })
             ? kFailure
             : kSuccess;
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
      ->capture_default_str();
  matrix->add_option("--seeds", options->seeds, "Runs of each, with other seeds of the network")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  matrix->add_option("--first-seed", options->first_seed, "The first of them")
      ->capture_default_str();
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
  matrix->add_option("--junit", options->junit, "File for the results as JUnit's XML");
  matrix->add_option("--markdown", options->markdown,
                     "File for the results as a page, for job summaries");
  matrix->add_flag("--json", options->json, "A JSON object for each cell instead of the table");
  matrix
      ->add_option("command", options->words, "After `--`: a command, or several with `:` between")
      ->expected(-1);
  matrix->callback([&work, options] { work = [options] { return run_matrix(*options); }; });
}

}  // namespace weft::cli
