// Owns starting, watching, ending and judging one cell.
//
// A cell is a `weft run` in a process group of its own. It ends by itself, by its time limit,
// because it has printed too much, or because the user interrupts the matrix. In the last three
// cases the run is asked to end by signals that grow firmer, after a debugger has shown where its
// programs stand.
#include "emu/cli/matrix/cell.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "emu/cli/matrix/keeper.hpp"
#include "emu/cli/shell_quoted.hpp"
#include "srd/io/posix.hpp"

namespace weft::cli {
namespace {

constexpr std::size_t kTailLines = 12;
constexpr std::size_t kTailBytes = 16384;
// `weft run` passes a signal on to its programs, and kills them at the third.
constexpr std::chrono::seconds kBetweenSignals{1};
constexpr int kPoliteSignals = 3;
constexpr std::chrono::seconds kBeforeKill{5};
constexpr std::int64_t kMaxGrace = 3600;  // that `weft run` takes
constexpr std::size_t kMaxDevice = 64;    // in a name

// Only the end is read: a log may be as large as CellLog lets it grow. The first of its lines may
// be cut, and is left out.
std::vector<std::string> last_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<std::size_t>(std::max<std::streamoff>(0, file.tellg()));
  const std::size_t from = size > kTailBytes ? size - kTailBytes : 0;
  file.seekg(static_cast<std::streamoff>(from));
  std::deque<std::string> lines;
  std::string line;
  for (bool cut = from != 0; std::getline(file, line); cut = false) {
    if (!cut) {
      lines.push_back(line);
    }
    if (lines.size() > kTailLines) {
      lines.pop_front();
    }
  }
  return {lines.begin(), lines.end()};
}

// As a part of a file's name: a device may be a path.
std::string file_name(std::string text) {
  // Its end, which tells profiles in one folder apart.
  text = text.substr(text.size() - std::min(text.size(), kMaxDevice));
  std::ranges::replace_if(
      text,
      [](char c) {
        return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 c == '.' || c == '-');
      },
      '_');
  return text;
}

// What no shell gives a meaning to in the middle of a word.
bool needs_no_quotes(const std::string& word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::strchr("_-./:=@+,%", c) != nullptr;
  });
}

}  // namespace

std::string shell_line(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += text.empty() ? "" : " ";
    text += needs_no_quotes(word) ? word : shell_quoted(word);
  }
  return text;
}

std::string Cell::name() const {
  return fmt::format("{}-{}-{}", condition->name, file_name(device), seed);
}

RunningCell::RunningCell(const MatrixPlan& plan, const Cell& cell, std::string folder)
    : timeout_(plan.timeout),
      cell_(cell),
      folder_(std::move(folder)),
      log_(folder_ + "/" + CellFiles::kLog) {
  write_command(plan);
  start(plan);
}

// `command_` is the `weft run` that does the same again, as it is shown to people. What concerns
// this cell's folder only, such as --out, is added in start().
void RunningCell::write_command(const MatrixPlan& plan) {
  const Condition& condition = *cell_.condition;
  command_ = {"weft", "run", "--device", cell_.device};
  command_.insert(command_.end(), plan.options.begin(), plan.options.end());
  std::string topology = condition.topology_file;
  if (!condition.topology.empty()) {
    topology = folder_ + "/" + CellFiles::kTopology;
    std::ofstream file(topology);
    file << topology_text(condition, plan.hosts);
    if (!file.flush()) {
      throw std::runtime_error("cannot write '" + topology + "'");
    }
  }
  if (!topology.empty()) {
    command_.insert(command_.end(), {"--topology", topology});
  }
  const auto options = run_options(condition, plan.hosts);
  command_.insert(command_.end(), options.begin(), options.end());
  if (!condition.kills.empty()) {
    // The survivor that notices first may fail first; the others have their time all the same.
    command_.insert(
        command_.end(),
        {"--grace", std::to_string(std::min<std::int64_t>(kMaxGrace, timeout_.count()))});
  }
  command_.insert(command_.end(), {"--seed", std::to_string(cell_.seed)});
}

void RunningCell::start(const MatrixPlan& plan) {
  std::vector<std::string> words = command_;
  words.insert(words.end(), {"--out", folder_ + "/" + CellFiles::kRun});
  if (plan.capture) {
    words.emplace_back("--capture");
  }
  for (auto* const list : {&words, &command_}) {
    list->emplace_back("--");
    list->insert(list->end(), plan.words.begin(), plan.words.end());
  }
  // The same weft, whatever PATH has.
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const srd::UniqueFd output = log_.take_writer();
  const pid_t parent = ::getpid();
  begin_ = Clock::now();
  pid_ = ::fork();
  if (pid_ == 0) {
    keep(program, words, output.get(), parent);
  }
  if (pid_ < 0) {
    throw std::runtime_error(srd::errno_text("cannot start 'weft run'"));
  }
  // Here and in the child (keep()), since either may come first: from then on Ctrl-C is for the
  // matrix alone.
  ::setpgid(pid_, pid_);
}

// Only where the matrix itself fails: the keeper is told to end all that it keeps.
RunningCell::~RunningCell() {
  if (!ended_ && pid_ > 0) {
    log_.close();
    ::kill(pid_, kKillKept);
    ::waitpid(pid_, nullptr, 0);
  }
}

bool RunningCell::look() {
  if (ended_) {
    return true;
  }
  log_.read();
  const auto now = Clock::now();
  if (int status = 0; ::waitpid(pid_, &status, WNOHANG) == pid_) {
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ended_ = true;
    end_ = now;
    log_.read();  // what came before the end
    log_.close();
    return true;
  }
  end_when_due(now);
  signal_when_due(now);
  return false;
}

void RunningCell::end_when_due(Clock::time_point now) {
  // The debugger has been through with all programs: now the cell may be ended.
  if (stacks_ && stacks_->look()) {
    stack_lines_ = stacks_->lines();
    stacks_.reset();
    next_signal_ = now;
  }
  if (timed_out_ || interrupted_ || said_too_much_) {
    return;
  }
  if (log_.is_full()) {
    said_too_much_ = true;
    next_signal_ = now;
  } else if (now - begin_ >= timeout_) {
    // First what the programs wait for is written down, then the debugger asks them, and only then
    // signals are sent: they would change what there is to see.
    timed_out_ = true;
    waits_ = what_descendants_wait_for(pid_);
    stacks_.emplace(waits_, folder_ + "/" + CellFiles::kStacks);
  }
}

void RunningCell::interrupt() {
  if (!ended_ && !interrupted_) {
    interrupted_ = true;
    stacks_.reset();
    next_signal_ = std::min(next_signal_, Clock::now());
  }
}

void RunningCell::signal_when_due(Clock::time_point now) {
  if (now < next_signal_) {
    return;
  }
  ++signals_;
  // To the keeper alone, which passes it on or, at the last one, ends all that is there.
  ::kill(pid_, signals_ <= kPoliteSignals ? SIGTERM : kKillKept);
  next_signal_ = now + (signals_ < kPoliteSignals ? kBetweenSignals : kBeforeKill);
}

// The verdict is judge()'s; here the words for people are added.
CellResult RunningCell::result() const {
  CellResult result{.cell = cell_,
                    .seconds = std::chrono::duration<double>(end_ - begin_).count(),
                    .stacks = stack_lines_,
                    .command = shell_line(command_),
                    .log = folder_ + "/" + CellFiles::kLog};
  for (const Wait& wait : waits_) {
    result.waits.push_back(wait.text);
  }
  const Judgement judgement = judge(
      *cell_.condition, {.programs = read_ends(folder_ + "/" + CellFiles::kRun + "/events.jsonl"),
                         .code = code_,
                         .timeout = timeout_,
                         .timed_out = timed_out_,
                         .said_too_much = said_too_much_,
                         .interrupted = interrupted_});
  result.verdict = judgement.verdict;
  result.reason = judgement.reason;
  if (log_.failure() != 0) {
    result.reason += fmt::format("{}its log lacks output: {}", result.reason.empty() ? "" : "; ",
                                 std::strerror(log_.failure()));
  }
  if (result.verdict == Verdict::red) {
    result.tail = last_lines(result.log);
  }
  return result;
}

}  // namespace weft::cli
