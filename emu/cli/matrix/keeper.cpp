// Owns running a program as the parent that the kernel gives its orphans to.
//
// This process is the cell's subreaper (PR_SET_CHILD_SUBREAPER): whatever the program starts and
// leaves running becomes a child of it, and is killed when the program has ended. So nothing of a
// cell is left when the next one begins.
#include "emu/cli/matrix/keeper.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "emu/cli/matrix/processes.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/write_signals.hpp"
#include "srd/base/death_signal.hpp"

namespace weft::cli {
namespace {

using Clock = std::chrono::steady_clock;

// For what was killed to be gone: the kernel may have work to end for it.
constexpr std::chrono::seconds kPatience{2};
constexpr std::chrono::milliseconds kBetweenRounds{5};
constexpr int kSignalled = 128;  // an exit code above this is a signal
constexpr int kCannotRun = 127;
constexpr std::array kPassedOn{SIGINT, SIGTERM, SIGHUP, SIGQUIT};

[[noreturn]] void become(const std::string& path, const std::vector<std::string>& words, int output,
                         pid_t parent, const sigset_t& mask) {
  launch::forget_interrupts();
  launch::restore_write_signals();
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  die_with(parent, SIGTERM);
  // A program outside of the terminal's foreground that reads it is stopped, and would hang.
  ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  ::execv(path.c_str(), arguments.data());
  ::_exit(kCannotRun);
}

// The exit status of `child`; others that end meanwhile are orphans.
int wait_for(pid_t child, const sigset_t& signals) {
  while (true) {
    const int signal = ::sigwaitinfo(&signals, nullptr);
    if (signal == SIGCHLD) {
      int status = 0;
      for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid == child) {
          return status;
        }
      }
    } else if (signal > 0) {
      ::kill(child, signal == kKillKept ? SIGKILL : SIGTERM);
    }
  }
}

// A child's number stays its own until it is waited for, so no other process can be meant. The
// children of those that are killed come to us in turn.
void end_orphans(int output) {
  for (const auto end = Clock::now() + kPatience; Clock::now() < end;) {
    pid_t ended = 0;
    do {
      ended = ::waitpid(-1, nullptr, WNOHANG);
    } while (ended > 0);
    if (ended < 0 && errno == ECHILD) {
      return;
    }
    for (const auto& [pid, process] : all_processes()) {
      if (process.parent == ::getpid() && process.state != 'Z') {
        const std::string text = fmt::format(
            "weft matrix: ended {} (process {}), which had outlived its run\n", process.name, pid);
        [[maybe_unused]] const auto written = ::write(output, text.data(), text.size());
        ::kill(pid, SIGKILL);
      }
    }
    std::this_thread::sleep_for(kBetweenRounds);
  }
}

}  // namespace

void keep(const std::string& path, const std::vector<std::string>& words, int output,
          pid_t parent) {
  ::setpgid(0, 0);  // Ctrl-C is for the matrix alone: it tells us
  sigset_t signals;
  sigset_t before;
  ::sigemptyset(&signals);
  for (const int signal : kPassedOn) {
    ::sigaddset(&signals, signal);
  }
  ::sigaddset(&signals, SIGCHLD);
  ::sigaddset(&signals, kKillKept);
  // Blocked before the child is started, so that no signal is lost; wait_for() takes them one by
  // one.
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  die_with(parent, SIGTERM);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    become(path, words, output, self, before);
  }
  if (child < 0) {
    ::_exit(kCannotRun);
  }
  const int status = wait_for(child, signals);
  end_orphans(output);
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status));
}

}  // namespace weft::cli
