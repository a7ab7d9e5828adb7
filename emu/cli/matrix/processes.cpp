// Owns reading /proc for what a process does at the moment: the system call in which it waits,
// where the kernel says so, its state otherwise.
#include "emu/cli/matrix/processes.hpp"

#include <fmt/format.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

namespace weft::cli {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A process that is gone meanwhile has no state and no parent.
ProcessState process(pid_t pid) {
  ProcessState one;
  const std::string text = read(fmt::format("/proc/{}/stat", pid));
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(')');  // the name may contain anything
  if (open != std::string::npos && close != std::string::npos) {
    one.name = text.substr(open + 1, close - open - 1);
    std::istringstream(text.substr(close + 1)) >> one.state >> one.parent;
  }
  return one;
}

// The emulated host that it lives on; none: it is one of ours.
std::string host_of(pid_t pid) {
  // As it was when the program began, whatever the program has changed since.
  std::istringstream environment(read(fmt::format("/proc/{}/environ", pid)));
  const std::string key = "WEFT_HOST=";
  for (std::string word; std::getline(environment, word, '\0');) {
    if (word.starts_with(key)) {
      return word.substr(key.size());
    }
  }
  return "";
}

// The calls in which programs wait; others are told by number.
std::string name_of_call(long number) {
  static const std::map<long, std::string> names{
      {SYS_read, "read"},
      {SYS_write, "write"},
      {SYS_ppoll, "ppoll"},
      {SYS_futex, "futex"},
      {SYS_recvfrom, "recvfrom"},
      {SYS_recvmsg, "recvmsg"},
      {SYS_sendmsg, "sendmsg"},
      {SYS_accept, "accept"},
      {SYS_accept4, "accept4"},
      {SYS_connect, "connect"},
      {SYS_wait4, "wait4"},
      {SYS_waitid, "waitid"},
      {SYS_nanosleep, "nanosleep"},
      {SYS_clock_nanosleep, "clock_nanosleep"},
      {SYS_epoll_pwait, "epoll_pwait"},
      {SYS_pselect6, "pselect6"},
#ifdef SYS_poll  // not on every architecture
      {SYS_poll, "poll"},
      {SYS_epoll_wait, "epoll_wait"},
      {SYS_select, "select"},
      {SYS_pause, "pause"},
#endif
  };
  const auto found = names.find(number);
  return found == names.end() ? fmt::format("system call {}", number) : found->second + "()";
}

std::string what_it_does(pid_t pid, const ProcessState& known) {
  if (known.state == 'T') {
    return "is stopped";
  }
  // Empty where the kernel does not let us look (ptrace_scope), or has no such file.
  const std::string call = read(fmt::format("/proc/{}/syscall", pid));
  if (known.state == 'R' || call.starts_with("running")) {
    return "runs (it polls, or calculates)";
  }
  std::string text = "waits";
  if (!call.empty()) {
    text += " in " + name_of_call(std::strtol(call.c_str(), nullptr, 10));
  }
  const std::string where = read(fmt::format("/proc/{}/wchan", pid));
  // "0": the kernel does not tell.
  if (!where.empty() && where != "0") {
    text += ", kernel: " + where;
  }
  return text;
}

}  // namespace

std::map<pid_t, ProcessState> all_processes() {
  std::map<pid_t, ProcessState> all;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    // What is no process has no number, and atoi() makes 0 of it.
    if (const pid_t pid = std::atoi(entry.path().filename().c_str()); pid > 0) {
      all.emplace(pid, process(pid));
    }
  }
  return all;
}

std::vector<Wait> what_descendants_wait_for(pid_t ancestor) {
  const std::map<pid_t, ProcessState> all = all_processes();
  const auto descends = [&](pid_t pid) {
    std::set<pid_t> seen;  // numbers may be given again while we read
    while (pid != ancestor && all.contains(pid) && seen.insert(pid).second) {
      pid = all.at(pid).parent;
    }
    return pid == ancestor;
  };
  std::vector<Wait> waits;
  for (const auto& [pid, known] : all) {
    if (pid == ancestor || known.state == 'Z' || !descends(pid)) {
      continue;
    }
    if (const std::string host = host_of(pid); !host.empty()) {
      waits.push_back({pid, fmt::format("{}: {} (process {}) {}", host, known.name, pid,
                                        what_it_does(pid, known))});
    }
  }
  std::ranges::sort(waits, {}, &Wait::text);
  return waits;
}

}  // namespace weft::cli
