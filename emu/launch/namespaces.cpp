// Owns the system calls of namespaces.
#include "emu/launch/namespaces.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "srd/base/death_signal.hpp"
#include "srd/io/posix.hpp"

namespace weft::launch {
namespace {

bool write_file(const char* path, const std::string& text) {
  const srd::UniqueFd file(::open(path, O_WRONLY | O_CLOEXEC));
  return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace

Result<void> enter_private_network() {
  const std::string user = std::to_string(::geteuid());
  const std::string group = std::to_string(::getegid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) {
    // Root inside, so that devices can be made; for the file system it is the same user as before.
    if (!write_file("/proc/self/setgroups", "deny") ||
        !write_file("/proc/self/uid_map", "0 " + user + " 1") ||
        !write_file("/proc/self/gid_map", "0 " + group + " 1")) {
      return fail(ErrorCode::not_permitted, srd::errno_text("mapping users into the namespace"));
    }
  } else if (::unshare(CLONE_NEWNET) != 0) {  // root may do this without a user namespace
    return fail(ErrorCode::not_permitted,
                srd::errno_text("a network namespace of one's own (`weft doctor` says more)"));
  }
  return run_ip({"link", "set", "lo", "up"});
}

Result<void> run_ip(const std::vector<std::string>& words) {
  std::string line = "ip";
  std::vector<char*> arguments{const_cast<char*>("ip")};
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));
    line += " " + word;
  }
  arguments.push_back(nullptr);
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGPIPE, SIG_DFL);
    die_with(self, SIGKILL);
    ::execvp("ip", arguments.data());
    ::execv("/sbin/ip", arguments.data());
    ::_exit(127);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
      WEXITSTATUS(status) != 0) {
    return fail(ErrorCode::io_error,
                "'" + line + "' failed" +
                    (WIFEXITED(status) && WEXITSTATUS(status) == 127 ? ": install iproute2" : ""));
  }
  return {};
}

}  // namespace weft::launch
