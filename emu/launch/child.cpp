// Owns starting and ending a program that must not outlive this one.
#include "emu/launch/child.hpp"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "emu/launch/interrupt.hpp"
#include "emu/launch/write_signals.hpp"
#include "srd/base/death_signal.hpp"
#include "srd/io/posix.hpp"

namespace weft::launch {
namespace {

constexpr std::chrono::seconds kPatience{5};

[[noreturn]] void become(const ChildOptions& options, pid_t parent) {
  forget_interrupts();
  restore_write_signals();
  ::setpgid(0, 0);  // Ctrl-C at the terminal is for us; we end it
  die_with(parent, options.death_signal);
  const std::pair<int, int> streams[] = {
      {options.in, STDIN_FILENO}, {options.out, STDOUT_FILENO}, {options.errors, STDERR_FILENO}};
  for (const auto& [from, to] : streams) {
    if (from >= 0) {
      ::dup2(from, to);
    }
  }
  for (const int fd : options.keep) {
    ::fcntl(fd, F_SETFD, 0);
  }
  for (const auto& [name, value] : options.environment) {
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<char*> arguments;
  for (const std::string& word : options.words) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

Result<Child> Child::start(const ChildOptions& options) {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    return fail(ErrorCode::out_of_resources, srd::errno_text("fork"));
  }
  if (pid == 0) {
    become(options, parent);
  }
  return Child(pid, options.death_signal);
}

std::optional<int> Child::ended() {
  int status = 0;
  if (pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    pid_ = -1;
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return code_;
}

void Child::end() {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (pid_ > 0 && !ended()) {
    ::kill(pid_, std::chrono::steady_clock::now() < give_up ? death_signal_ : SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

}  // namespace weft::launch
