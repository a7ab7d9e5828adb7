// Owns starting groups of programs, passing on their output and signals, and ending them.
//
// One thread and one poll(): turn() waits for output of the programs, for room in our own streams,
// and for signals, which arrive by signalfd. Each program has a process group of its own, so that a
// signal reaches everything that it has started.
#include "emu/launch/program_group.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "emu/devices/listening_sign.hpp"
#include "emu/launch/cores.hpp"
#include "emu/launch/write_signals.hpp"
#include "srd/base/death_signal.hpp"

namespace weft::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kTermToKill{2000};
constexpr std::array kForwarded{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};
constexpr int kPatientInterrupts = 2;  // the next one kills
constexpr std::size_t kMaxLine = std::size_t{1} << 16;

// Blocking a signal makes signalfd deliver it even where it was ignored. Under nohup, SIGHUP must
// stay ignored.
bool is_kept_from_us(int signal) {
  struct sigaction before {};
  ::sigaction(signal, nullptr, &before);
  return signal == SIGHUP && before.sa_handler == SIG_IGN;
}

sigset_t watched_signals() {
  sigset_t mask;
  ::sigemptyset(&mask);
  ::sigaddset(&mask, SIGCHLD);
  for (const int signal : kForwarded) {
    if (!is_kept_from_us(signal)) {
      ::sigaddset(&mask, signal);
    }
  }
  return mask;
}

// Under `stty tostop` a terminal stops background processes that write to it, and only one of our
// programs can be in the foreground: so SIGTTOU is ignored. Without that setting it stays, because
// it also stops a background process that changes the terminal's settings.
void let_write_to_terminal() {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    termios settings{};
    if (::tcgetattr(fd, &settings) == 0 && (settings.c_lflag & TOSTOP) != 0) {
      ::signal(SIGTTOU, SIG_IGN);
    }
  }
}

// In the child, between fork and exec.
[[noreturn]] void become(const Program& program, pid_t parent, int out, int error_out) {
  sigset_t mask;
  ::sigemptyset(&mask);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  restore_write_signals();
  ::setpgid(0, 0);
  if (program.takes_terminal) {
    Terminal::claim_for_this_process();
  } else {
    let_write_to_terminal();
    if (::isatty(STDIN_FILENO) != 0) {
      ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    }
  }
  if (program.network != nullptr && !program.network->enter()) {
    ::dprintf(error_out >= 0 ? error_out : STDERR_FILENO, "weft: entering the host's network: %s\n",
              std::strerror(errno));
    ::_exit(126);
  }
  if (program.avoid_core) {
    keep_off_core(0, *program.avoid_core);
  }
  die_with(parent, SIGTERM);
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

bool asks_to_end(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

// Processes still run in that process group.
bool has_members(pid_t wanted) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    std::ifstream file(entry.path() / "stat");
    std::string line;
    std::getline(file, line);
    // The name, in parentheses, may contain anything.
    std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
    char state = 'Z';
    pid_t parent = 0;
    pid_t group = 0;
    if (fields >> state >> parent >> group && state != 'Z' && state != 'X' && group == wanted) {
      return true;
    }
  }
  return false;
}

}  // namespace

ProgramGroup::ProgramGroup() : writers_{StreamWriter(STDOUT_FILENO), StreamWriter(STDERR_FILENO)} {
  const sigset_t mask = watched_signals();
  ::sigprocmask(SIG_BLOCK, &mask, &mask_before_);
  signals_ = srd::UniqueFd(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
}

ProgramGroup::~ProgramGroup() {
  signal_all(SIGKILL);
  for (const Running& program : programs_) {
    if (!program.ended) {
      ::waitpid(program.pid, nullptr, 0);
    }
  }
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
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
  running.has_terminal = program.takes_terminal && terminal_.is_ours();
  running.signals = program.signals;
  std::stable_sort(running.signals.begin(), running.signals.end(),
                   [](const TimedSignal& a, const TimedSignal& b) { return a.after > b.after; });
  const pid_t parent = ::getpid();
  running.pid = ::fork();
  if (running.pid == 0) {
    Program self = program;
    self.takes_terminal = running.has_terminal;
    become(self, parent, pipes[0][1], pipes[1][1]);
  }
  for (std::size_t stream = 0; prefixed && stream < 2; ++stream) {
    ::close(pipes[stream][1]);
    running.output[stream] = srd::UniqueFd(pipes[stream][0]);
    ::fcntl(pipes[stream][0], F_SETFL, O_NONBLOCK);
  }
  if (running.pid < 0) {
    return fail(ErrorCode::out_of_resources,
                srd::errno_text("starting '" + program.words[0] + "'"));
  }
  ::setpgid(running.pid, running.pid);
  if (running.has_terminal) {
    terminal_.lend(running.pid);
  }
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
      const std::string link = std::filesystem::read_symlink(fd.path(), error).string();
      if (link == devices::kListeningLink || listening.contains(link)) {
        return true;
      }
    }
    return false;
  };
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

// term_at: when those that still run are asked to end; kill_at: when they are killed. Both only
// move towards now.
std::vector<ProgramEnd> ProgramGroup::finish(milliseconds grace, milliseconds limit) {
  auto term_at =
      limit == milliseconds::max() ? steady_clock::time_point::max() : steady_clock::now() + limit;
  auto kill_at = steady_clock::time_point::max();
  bool hurried = false;
  const auto runs = [](const Running& program) { return !program.ended; };
  const auto failed = [](const Running& program) { return program.ended && program.end.failed(); };
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
  terminal_.take_back();  // the rest of the output is written by this process
  end_leftovers();
  drain();
  std::vector<ProgramEnd> ends;
  for (const Running& program : programs_) {
    ends.push_back(program.end);
  }
  return ends;
}

// Ends what the programs have started and left running in their process groups.
void ProgramGroup::end_leftovers() {
  if (!have_left_others()) {
    return;
  }
  signal_all(SIGTERM);
  const auto kill_at = steady_clock::now() + kTermToKill;
  while (have_left_others()) {
    turn(milliseconds{20});
    if (steady_clock::now() >= kill_at + kTermToKill) {
      writers_[1].add("weft: what the programs have started goes on: it may not be killed\n");
      return;
    }
    if (steady_clock::now() >= kill_at) {
      signal_all(SIGKILL);
    }
  }
}

bool ProgramGroup::have_left_others() {
  bool any = false;
  for (Running& program : programs_) {
    program.left_others = program.left_others && has_members(program.pid);
    any = any || program.left_others;
  }
  return any;
}

// Passes on what the programs have written while it is being read. After an interrupt it gives up
// when nothing was read for kTermToKill.
void ProgramGroup::drain() {
  auto patience = steady_clock::now() + kTermToKill;
  bool is_open = true;
  while (is_open && (interrupts_ == 0 || steady_clock::now() < patience)) {
    is_open = false;
    for (Running& program : programs_) {
      for (std::size_t stream = 0; stream < writers_.size(); ++stream) {
        pass_on(program, stream);
        is_open = is_open || (program.output[stream] && writers_[stream].is_full());
        if (!is_open) {
          flush(program, stream, true);
        }
      }
    }
    is_open = is_open || pending_output() != 0;
    if (is_open) {
      const std::size_t before = pending_output();
      turn(milliseconds{100});
      if (pending_output() != before) {
        patience = steady_clock::now() + kTermToKill;
      }
    }
  }
  for (StreamWriter& writer : writers_) {
    writer.drop();
  }
}

// One round of waiting and passing on. A stream whose reader is behind (is_full) is not polled: the
// program then blocks in its own write, as it would without us.
void ProgramGroup::turn(milliseconds wait) {
  send_timed_signals();
  wait = std::min(wait, until_next_signal());
  std::vector<pollfd> fds{{signals_.get(), POLLIN, 0}};
  for (const StreamWriter& writer : writers_) {
    fds.push_back({writer.pending() != 0 ? writer.fd() : -1, POLLOUT, 0});
  }
  const std::size_t first = fds.size();
  std::vector<std::pair<Running*, std::size_t>> streams;
  for (Running& program : programs_) {
    for (std::size_t stream = 0; stream < writers_.size(); ++stream) {
      if (program.output[stream] && !writers_[stream].is_full()) {
        fds.push_back({program.output[stream].get(), POLLIN, 0});
        streams.emplace_back(&program, stream);
      }
    }
  }
  if (::poll(fds.data(), fds.size(), static_cast<int>(wait.count())) <= 0) {
    return;
  }
  write_out();
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (fds[first + i].revents != 0) {
      pass_on(*streams[i].first, streams[i].second);
    }
  }
  if (fds[0].revents != 0) {
    handle_signals();
  }
}

void ProgramGroup::pass_on(Running& program, std::size_t stream) {
  std::array<char, 16384> buffer;
  while (program.output[stream] && !writers_[stream].is_full()) {
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

// Whole lines, each with its label: lines of different programs do not mix. A line that is too long
// to wait for its end is cut.
void ProgramGroup::flush(Running& program, std::size_t stream, bool all) {
  std::string& pending = program.pending[stream];
  std::string text;
  std::size_t at = 0;
  for (std::size_t end; (end = pending.find('\n', at)) != std::string::npos; at = end + 1) {
    text += "[" + program.label + "] " + pending.substr(at, end + 1 - at);
  }
  pending.erase(0, at);
  if (pending.size() > kMaxLine || (all && !pending.empty())) {
    text += "[" + program.label + "] " + pending + "\n";
    pending.clear();
  }
  if (output_) {
    output_(stream, text);
  } else {
    writers_[stream].add(text);
    write_out();
  }
}

void ProgramGroup::write_out() {
  for (std::size_t stream = 0; stream < writers_.size(); ++stream) {
    if (!writers_[stream].write_some()) {
      // The reader is gone. Close the programs' pipes as well: they get SIGPIPE at their next
      // write, as they would without us.
      for (Running& each : programs_) {
        each.output[stream].reset();
      }
    }
  }
}

std::size_t ProgramGroup::pending_output() const {
  return writers_[0].pending() + writers_[1].pending();
}

int ProgramGroup::output_failure() const {
  return writers_[0].failure() != 0 ? writers_[0].failure() : writers_[1].failure();
}

// A signal that asks to end goes to all programs; from the third on they are killed, since they
// have not listened.
void ProgramGroup::handle_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGTSTP) {
      signal_all(SIGTSTP);
      stop_ourselves(SIGTSTP);
      signal_all(SIGCONT);
    } else if (signal != SIGCHLD) {
      if (asks_to_end(signal)) {
        ++interrupts_;
        interrupt_ = signal;
      }
      signal_all(interrupts_ > kPatientInterrupts ? SIGKILL : signal);
    }
  }
  look_at_programs();
}

// SIGCHLD says only that something happened to some child, and several may come as one: so every
// program is asked.
void ProgramGroup::look_at_programs() {
  for (Running& program : programs_) {
    const auto id = static_cast<id_t>(program.pid);
    siginfo_t what{};
    while (!program.ended && ::waitid(P_PID, id, &what, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
           what.si_pid != 0) {
      program.stopped = what.si_code != CLD_CONTINUED;
      if (program.stopped && !program.paused) {
        note_stop(program, what.si_status);
      }
      what = {};
    }
    if (!program.ended && ::waitid(P_PID, id, &what, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        what.si_pid != 0) {
      program.ended = true;
      // Before waitpid() frees the number: until then no other process group can have it.
      program.left_others = has_members(program.pid);
      ::waitpid(program.pid, nullptr, 0);
      program.end.name = program.name;
      program.end.place = ended_++;
      program.end.signal = what.si_code == CLD_EXITED ? 0 : what.si_status;
      program.end.code = what.si_code == CLD_EXITED ? what.si_status : 128 + what.si_status;
      program.end.killed = program.end.killed && program.end.signal == SIGKILL;
      program.end.seconds =
          std::chrono::duration<double>(steady_clock::now() - program.started).count();
    }
  }
}

void ProgramGroup::send_timed_signals() {
  const auto now = steady_clock::now();
  for (Running& program : programs_) {
    while (!program.ended && !program.signals.empty() &&
           program.started + program.signals.back().after <= now) {
      const int signal = program.signals.back().signal;
      program.signals.pop_back();
      program.paused = signal == SIGSTOP;
      program.end.killed = program.end.killed || signal == SIGKILL;
      program.end.stopped = program.end.stopped || signal == SIGSTOP;
      ::kill(-program.pid, signal);
    }
  }
}

// Rounded up: a wait that ends before its time would be followed by many short ones.
milliseconds ProgramGroup::until_next_signal() const {
  milliseconds least = milliseconds::max();
  for (const Running& program : programs_) {
    if (!program.ended && !program.signals.empty()) {
      const auto left = std::chrono::ceil<milliseconds>(
          program.started + program.signals.back().after - steady_clock::now());
      least = std::min(least, std::max(left, milliseconds{0}));
    }
  }
  return least;
}

// To the shell, a program that has the terminal is one job with us: if it stops, this process stops
// too, and both go on together.
void ProgramGroup::note_stop(Running& program, int signal) {
  if (program.has_terminal) {
    // After `bg` and `fg` the foreground is ours, and the program still lacks it.
    if (!terminal_.is_ours() || (signal != SIGTTIN && signal != SIGTTOU)) {
      terminal_.take_back();
      stop_ourselves(signal);
    }
    if (terminal_.is_ours()) {
      terminal_.lend(program.pid);
    }
    ::kill(-program.pid, SIGCONT);
    return;
  }
  std::string text = "weft: " + program.name + " is stopped (" + ::strsignal(signal) + ")";
  if (signal == SIGTTIN || signal == SIGTTOU) {
    text += ": only a program that runs alone, in the foreground, gets the terminal";
  }
  writers_[1].add(text + "; kill -CONT -" + std::to_string(program.pid) + " lets it go on\n");
  write_out();
}

// By the default action of the signal: the kernel ignores it in an orphaned process group, which no
// shell could continue.
void ProgramGroup::stop_ourselves(int signal) {
  sigset_t mask;
  sigset_t before;
  ::sigemptyset(&mask);
  ::sigaddset(&mask, SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &mask, &before);
  ::kill(0, signal == SIGSTOP ? SIGTSTP : signal);  // the other members of our pipeline as well
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

// To each program's process group, which has all that it started and that did not leave it.
void ProgramGroup::signal_all(int signal) {
  (void)have_left_others();
  for (const Running& program : programs_) {
    if (program.ended && !program.left_others) {
      continue;
    }
    ::kill(-program.pid, signal);
    if (program.stopped && signal != SIGTSTP) {
      ::kill(-program.pid, SIGCONT);  // a stopped process does not act on other signals
    }
  }
}

}  // namespace weft::launch
