// Owns starting, watching, ending and judging one cell.
#include "emu/cli/matrix/cell.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "emu/cli/matrix/waits.hpp"
#include "emu/launch/interrupt.hpp"

namespace weft::cli {
namespace {

constexpr std::size_t kTailLines = 12;
constexpr std::size_t kTailBytes = 16384;
// `weft run` passes a signal on to its programs, and kills them at the third.
constexpr std::chrono::seconds kBetweenSignals{1};
constexpr int kPoliteSignals = 3;
constexpr std::chrono::seconds kBeforeKill{5};
constexpr int kSignalled = 128;  // an exit code above this is a signal

// How a program ended, from what `weft run` writes down.
struct End {
  std::string name;
  int code = 0;
  bool killed = false;  // by the condition
};

std::vector<End> ends_of(const std::string& run_folder) {
  std::vector<End> ends;
  std::ifstream file(run_folder + "/events.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (event.is_object() && event.value("event", "") == "end") {
      ends.push_back(
          {event.value("host", ""), event.value("exit_code", 0), event.value("killed", false)});
    }
  }
  return ends;
}

std::string said(const End& end) {
  return end.code > kSignalled ? fmt::format("{}: signal {}", end.name, end.code - kSignalled)
                               : fmt::format("{}: exit {}", end.name, end.code);
}

// The others of one that died may fail: but each by itself, and none by a crash.
std::optional<std::string> fault_of_survivors(const std::vector<End>& ends) {
  const auto crashed = std::ranges::find_if(
      ends, [](const End& end) { return !end.killed && end.code > kSignalled; });
  return crashed == ends.end() ? std::nullopt : std::optional(said(*crashed));
}

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

[[noreturn]] void become(const std::string& program, const std::vector<std::string>& words, int log,
                         pid_t parent) {
  launch::forget_interrupts();
  ::signal(SIGPIPE, SIG_DFL);
  ::setpgid(0, 0);  // Ctrl-C is for us alone: we tell it
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) {
    ::_exit(kSignalled + SIGTERM);
  }
  ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  ::execv(program.c_str(), arguments.data());
  ::_exit(127);
}

bool needs_no_quotes(const std::string& word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::strchr("_-./:=@+,%", c) != nullptr;
  });
}

}  // namespace

std::string shell_quoted(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += text.empty() ? "" : " ";
    if (needs_no_quotes(word)) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) {
      text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    text += '\'';
  }
  return text;
}

std::string Cell::name() const {
  std::string text = fmt::format("{}-{}-{}", condition->name, device, seed);
  std::ranges::replace(text, '/', '_');  // of a profile's path
  std::ranges::replace(text, ':', '_');
  return text;
}

RunningCell::RunningCell(const MatrixPlan& plan, const Cell& cell, std::string folder)
    : plan_(plan), cell_(cell), folder_(std::move(folder)) {
  std::filesystem::create_directories(folder_);
  command_ = {"weft", "run", "--device", cell.device};
  command_.insert(command_.end(), plan.options.begin(), plan.options.end());
  if (!cell.condition->topology.empty()) {
    const std::string path = folder_ + "/topology.yaml";
    std::ofstream file(path);
    file << topology_text(*cell.condition, plan.hosts);
    if (!file.flush()) {
      throw std::runtime_error("cannot write '" + path + "'");
    }
    command_.insert(command_.end(), {"--topology", path});
  }
  const auto options = run_options(*cell.condition, plan.hosts);
  command_.insert(command_.end(), options.begin(), options.end());
  if (cell.condition->peer_dies) {
    // Whoever notices first may fail first; the others have their time all the same.
    command_.insert(command_.end(), {"--grace", std::to_string(plan.timeout.count())});
  }
  command_.insert(command_.end(), {"--seed", std::to_string(cell.seed)});
  std::vector<std::string> words = command_;
  words.insert(words.end(), {"--out", folder_ + "/run", "--"});
  words.insert(words.end(), plan.words.begin(), plan.words.end());
  command_.emplace_back("--");
  command_.insert(command_.end(), plan.words.begin(), plan.words.end());

  const std::string log = folder_ + "/log";
  const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) {
    throw std::runtime_error("cannot write '" + log + "': " + std::strerror(errno));
  }
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const pid_t parent = ::getpid();
  begin_ = Clock::now();
  pid_ = ::fork();
  if (pid_ == 0) {
    become(program, words, fd, parent);
  }
  ::close(fd);
  if (pid_ < 0) {
    throw std::runtime_error(std::string("cannot start 'weft run': ") + std::strerror(errno));
  }
  ::setpgid(pid_, pid_);
}

RunningCell::~RunningCell() {
  if (!ended_ && pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

bool RunningCell::look() {
  if (ended_) {
    return true;
  }
  const auto now = Clock::now();
  if (::waitpid(pid_, &status_, WNOHANG) == pid_) {
    ended_ = true;
    end_ = now;
    return true;
  }
  if (!timed_out_ && !interrupted_ && now - begin_ >= plan_.timeout) {
    timed_out_ = true;
    waits_ = what_descendants_wait_for(pid_);
    next_signal_ = now;
  }
  signal_when_due(now);
  return false;
}

void RunningCell::interrupt() {
  if (!ended_ && !interrupted_) {
    interrupted_ = true;
    next_signal_ = std::min(next_signal_, Clock::now());
  }
}

void RunningCell::signal_when_due(Clock::time_point now) {
  if (now < next_signal_) {
    return;
  }
  ++signals_;
  ::kill(pid_, signals_ <= kPoliteSignals ? SIGTERM : SIGKILL);
  next_signal_ = now + (signals_ < kPoliteSignals ? kBetweenSignals : kBeforeKill);
}

CellResult RunningCell::result() const {
  CellResult result{.cell = cell_,
                    .seconds = std::chrono::duration<double>(end_ - begin_).count(),
                    .waits = waits_,
                    .command = shell_quoted(command_),
                    .log = folder_ + "/log"};
  const std::vector<End> ends = ends_of(folder_ + "/run");
  const int code = WIFEXITED(status_) ? WEXITSTATUS(status_) : kSignalled + WTERMSIG(status_);
  std::optional<std::string> wrong;
  if (interrupted_ && !timed_out_) {
    result.verdict = Verdict::not_run;
    result.reason = "interrupted";
    return result;
  }
  if (timed_out_) {
    wrong = fmt::format("hang: not over after {} s", plan_.timeout.count());
  } else if (ends.empty()) {
    wrong = fmt::format("weft run: exit {}", code);
  } else if (cell_.condition->peer_dies) {
    wrong = fault_of_survivors(ends);
    if (!wrong && std::ranges::none_of(ends, &End::killed)) {
      result.reason = "all had ended before";
    }
  } else if (code != 0) {
    const auto first = std::ranges::find(ends, code, &End::code);
    wrong = first == ends.end() ? fmt::format("weft run: exit {}", code) : said(*first);
  }
  result.verdict = wrong ? Verdict::red : Verdict::green;
  if (wrong) {
    result.reason = *wrong;
    result.tail = last_lines(result.log);
  }
  return result;
}

}  // namespace weft::cli
