// Owns running gdb or eu-stack on programs that hang, one after the other, each in a process of its
// own whose output goes into a file of the cell. A debugger that hangs itself is killed.
#include "emu/cli/matrix/stacks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "emu/launch/find_program.hpp"
#include "emu/launch/interrupt.hpp"
#include "srd/base/death_signal.hpp"
#include "srd/io/posix.hpp"

namespace weft::cli {
namespace {

// For all programs of a cell. A debugger reads symbols for some seconds.
constexpr std::chrono::seconds kPatience{30};
// Where many hang, they mostly wait for the same; the first ones say it.
constexpr std::size_t kMaxPrograms = 16;
constexpr std::size_t kMaxLines = 60;

bool is_gdb(const std::string& debugger) { return debugger.ends_with("gdb"); }

std::vector<std::string> words_for(const std::string& debugger, pid_t pid) {
  // -nx: a user's own settings might ask questions.
  if (is_gdb(debugger)) {
    return {"gdb", "-nx", "-batch", "-p", std::to_string(pid), "-ex", "thread apply all bt"};
  }
  return {"eu-stack", "-p", std::to_string(pid)};
}

[[noreturn]] void become(const std::string& path, std::vector<std::string> words, int output,
                         pid_t parent) {
  launch::forget_interrupts();
  // In a group of its own, so that Ctrl-C is for the matrix alone.
  ::setpgid(0, 0);
  die_with(parent, SIGKILL);
  ::unsetenv("DEBUGINFOD_URLS");  // a test does not fetch files
  ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  ::execv(path.c_str(), arguments.data());
  ::_exit(1);
}

}  // namespace

Stacks::Stacks(std::vector<Wait> programs, std::string file)
    : programs_(std::move(programs)),
      file_(std::move(file)),
      debugger_(launch::find_program("gdb")),
      end_(std::chrono::steady_clock::now() + kPatience) {
  // With neither there are no stacks, which is no error: what the kernel tells of the programs is
  // shown in any case.
  if (debugger_.empty()) {
    debugger_ = launch::find_program("eu-stack");
  }
  programs_.resize(std::min(programs_.size(), kMaxPrograms));
}

Stacks::~Stacks() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

bool Stacks::look() {
  if (debugger_.empty()) {
    return true;
  }
  if (pid_ > 0) {
    if (std::chrono::steady_clock::now() >= end_) {
      return true;
    }
    if (::waitpid(pid_, nullptr, WNOHANG) == 0) {
      return false;
    }
    pid_ = -1;
  }
  if (next_ == programs_.size()) {
    return true;
  }
  ask(programs_[next_++]);
  return pid_ < 0;  // it could not be started
}

void Stacks::ask(const Wait& program) {
  const srd::UniqueFd output(
      ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
  const std::string title = "\n== " + program.text + "\n";
  if (!output || ::write(output.get(), title.data(), title.size()) < 0) {
    return;
  }
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    become(debugger_, words_for(debugger_, program.pid), output.get(), parent);
  }
}

std::vector<std::string> Stacks::lines() const {
  std::vector<std::string> lines;
  std::ifstream file(file_);
  for (std::string line; lines.size() < kMaxLines && std::getline(file, line);) {
    // Of a debugger's output only the frames, and whose they are.
    if (line.starts_with("== ") || line.starts_with("Thread ") || line.starts_with("TID ") ||
        line.starts_with("#")) {
      lines.push_back(line);
    }
  }
  return lines;
}

}  // namespace weft::cli
