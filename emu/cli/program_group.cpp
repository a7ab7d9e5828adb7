// Owns starting, listening to and ending groups of programs.
#include "emu/cli/program_group.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "emu/cli/cores.hpp"

namespace weft::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kTermToKill{2000};
constexpr std::array kForwarded{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

sigset_t watched_signals() {
  sigset_t mask;
  ::sigemptyset(&mask);
  ::sigaddset(&mask, SIGCHLD);
  for (const int signal : kForwarded) {
    ::sigaddset(&mask, signal);
  }
  return mask;
}

// In the child, between fork and exec.
[[noreturn]] void become(const Program& program, int out, int error_out) {
  sigset_t mask;
  ::sigemptyset(&mask);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::signal(SIGPIPE, SIG_DFL);  // which we ignore
  ::setpgid(0, 0);
  if (program.network != nullptr && !program.network->enter()) {
    ::dprintf(error_out >= 0 ? error_out : STDERR_FILENO, "weft: entering the host's network: %s\n",
              std::strerror(errno));
    ::_exit(126);
  }
  if (program.avoid_core) {
    keep_off_core(0, *program.avoid_core);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (out >= 0) {
    ::dup2(out, STDOUT_FILENO);
    ::dup2(error_out, STDERR_FILENO);
  }
  for (const auto& [name, value] : program.environment) {
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<char*> words;
  for (const std::string& word : program.words) {
    words.push_back(const_cast<char*>(word.c_str()));
  }
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  const std::string text =
      "weft: cannot run '" + program.words[0] + "': " + std::strerror(errno) + "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  ::_exit(errno == ENOENT ? 127 : 126);
}

// False: nobody reads it any more.
bool write_all(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t size = ::write(fd, text.data() + done, text.size() - done);
    if (size < 0 && errno != EINTR && errno != EAGAIN) {
      return errno != EPIPE;
    }
    done += size > 0 ? static_cast<std::size_t>(size) : 0;
  }
  return true;
}

// Inodes of all listening TCP sockets of that process's network namespace.
std::set<std::string> listening_inodes(pid_t pid) {
  std::set<std::string> inodes;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream file("/proc/" + std::to_string(pid) + table);
    std::string line;
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
          timeout >> inode;
      if (state == "0A") {
        inodes.insert("socket:[" + inode + "]");
      }
    }
  }
  return inodes;
}

}  // namespace

ProgramGroup::ProgramGroup() {
  const sigset_t mask = watched_signals();
  ::sigprocmask(SIG_BLOCK, &mask, nullptr);
  signals_ = srd::UniqueFd(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
}

ProgramGroup::~ProgramGroup() {
  signal_all(SIGKILL);
  for (Running& program : programs_) {
    if (!program.ended) {
      ::waitpid(program.pid, nullptr, 0);
    }
  }
}

Result<void> ProgramGroup::start(const Program& program) {
  int pipes[2][2] = {{-1, -1}, {-1, -1}};
  const bool prefixed = !program.label.empty();
  if (prefixed && (::pipe2(pipes[0], O_CLOEXEC) != 0 || ::pipe2(pipes[1], O_CLOEXEC) != 0)) {
    return fail(ErrorCode::out_of_resources,
                srd::errno_text("starting '" + program.words[0] + "'"));
  }
  Running running;
  running.name = program.name;
  running.label = program.label;
  running.started = steady_clock::now();
  running.pid = ::fork();
  if (running.pid == 0) {
    become(program, pipes[0][1], pipes[1][1]);
  }
  for (int stream = 0; prefixed && stream < 2; ++stream) {
    ::close(pipes[stream][1]);
    running.output[stream] = srd::UniqueFd(pipes[stream][0]);
    ::fcntl(pipes[stream][0], F_SETFL, O_NONBLOCK);
  }
  if (running.pid < 0) {
    return fail(ErrorCode::out_of_resources,
                srd::errno_text("starting '" + program.words[0] + "'"));
  }
  ::setpgid(running.pid, running.pid);
  programs_.push_back(std::move(running));
  return {};
}

bool ProgramGroup::is_serving(std::size_t index) const {
  const Running& program = programs_[index];
  if (program.ended) {
    return true;
  }
  const std::set<std::string> listening = listening_inodes(program.pid);
  const auto serves = [&](pid_t pid) {
    std::error_code error;
    for (const auto& fd :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
      if (listening.contains(std::filesystem::read_symlink(fd.path(), error).string())) {
        return true;
      }
    }
    return false;
  };
  if (listening.empty()) {
    return false;
  }
  // A wrapper's children are in its group.
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && ::getpgid(pid) == program.pid && serves(pid)) {
      return true;
    }
  }
  return false;
}

void ProgramGroup::wait_until(const std::function<bool()>& ready, milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  while (!ready() && steady_clock::now() < end) {
    turn(milliseconds{20});
  }
}

std::vector<ProgramEnd> ProgramGroup::finish(milliseconds grace, milliseconds limit) {
  auto term_at =
      limit == milliseconds::max() ? steady_clock::time_point::max() : steady_clock::now() + limit;
  auto kill_at = steady_clock::time_point::max();
  bool hurried = false;
  const auto runs = [](const Running& program) { return !program.ended; };
  const auto failed = [](const Running& program) { return program.ended && program.end.code != 0; };
  while (std::any_of(programs_.begin(), programs_.end(), runs)) {
    turn(milliseconds{100});
    const auto now = steady_clock::now();
    if (!hurried && std::any_of(programs_.begin(), programs_.end(), failed)) {
      hurried = true;
      term_at = std::min(term_at, now + grace);
    }
    if (now >= kill_at) {
      signal_all(SIGKILL);
    } else if (now >= term_at && kill_at == steady_clock::time_point::max()) {
      signal_all(SIGTERM);
      kill_at = now + kTermToKill;
    }
  }
  std::vector<ProgramEnd> ends;
  for (Running& program : programs_) {
    for (const int stream : {0, 1}) {
      pass_on(program, stream);
      flush(program, stream, true);
    }
    ends.push_back(program.end);
  }
  return ends;
}

void ProgramGroup::turn(milliseconds wait) {
  std::vector<pollfd> fds{{signals_.get(), POLLIN, 0}};
  std::vector<std::pair<Running*, int>> streams{{nullptr, 0}};
  for (Running& program : programs_) {
    for (const int stream : {0, 1}) {
      if (program.output[stream]) {
        fds.push_back({program.output[stream].get(), POLLIN, 0});
        streams.emplace_back(&program, stream);
      }
    }
  }
  if (::poll(fds.data(), fds.size(), static_cast<int>(wait.count())) <= 0) {
    return;
  }
  for (std::size_t i = 1; i < fds.size(); ++i) {
    if (fds[i].revents != 0) {
      pass_on(*streams[i].first, streams[i].second);
    }
  }
  if (fds[0].revents != 0) {
    handle_signals();
  }
}

void ProgramGroup::pass_on(Running& program, int stream) {
  std::array<char, 16384> buffer;
  while (program.output[stream]) {
    const ssize_t size = ::read(program.output[stream].get(), buffer.data(), buffer.size());
    if (size > 0) {
      program.pending[stream].append(buffer.data(), static_cast<std::size_t>(size));
      flush(program, stream, false);
    } else if (size < 0 && errno == EAGAIN) {
      return;
    } else if (size == 0 || errno != EINTR) {
      flush(program, stream, true);
      program.output[stream].reset();
    }
  }
}

// Whole lines, each with its label: lines of different programs do not mix.
void ProgramGroup::flush(Running& program, int stream, bool all) {
  std::string& pending = program.pending[stream];
  std::string text;
  std::size_t at = 0;
  for (std::size_t end; (end = pending.find('\n', at)) != std::string::npos; at = end + 1) {
    text += "[" + program.label + "] " + pending.substr(at, end + 1 - at);
  }
  pending.erase(0, at);
  if (all && !pending.empty()) {
    text += "[" + program.label + "] " + pending + "\n";
    pending.clear();
  }
  if (output_) {
    output_(stream, text);
  } else if (!write_all(stream == 0 ? STDOUT_FILENO : STDERR_FILENO, text)) {
    // The programs learn it the way they would without us: by SIGPIPE when they write on.
    for (Running& each : programs_) {
      each.output[stream].reset();
    }
  }
}

void ProgramGroup::handle_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal != SIGCHLD) {
      signal_all(signal);
    }
  }
  reap();
}

void ProgramGroup::reap() {
  for (Running& program : programs_) {
    int status = 0;
    if (!program.ended && ::waitpid(program.pid, &status, WNOHANG) == program.pid) {
      program.ended = true;
      program.end.name = program.name;
      program.end.place = ended_++;
      program.end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      program.end.seconds =
          std::chrono::duration<double>(steady_clock::now() - program.started).count();
    }
  }
}

void ProgramGroup::signal_all(int signal) {
  for (const Running& program : programs_) {
    if (!program.ended) {
      ::kill(-program.pid, signal);
    }
  }
}

}  // namespace weft::cli
