// Owns starting and ending weftd.
#include "emu/launch/weftd_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include "emu/attach/seqpacket.hpp"
#include "emu/fabric/yaml_reader.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/interrupt.hpp"
#include "srd/base/death_signal.hpp"
#include "srd/io/posix.hpp"

namespace weft::launch {
namespace {

bool has_ended(pid_t child) { return ::waitpid(child, nullptr, WNOHANG) != 0; }

// SIGTERM at first, SIGKILL after kPatienceWithEnd: also a weftd that is stopped or stuck ends.
void end_weftd(pid_t weftd) {
  const auto give_up = std::chrono::steady_clock::now() + kPatienceWithEnd;
  while (!has_ended(weftd)) {
    const bool is_patient = std::chrono::steady_clock::now() < give_up;
    // Repeatedly: a signal that arrives between fork and exec goes to our own handler, and is lost.
    ::kill(weftd, is_patient ? SIGTERM : SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

// A weftd that does not accept programs yet. Ends it when destroyed, unless it was released: the
// start may be interrupted, and its directory is then removed.
class StartingWeftd {
 public:
  explicit StartingWeftd(pid_t pid) : pid_(pid) {}
  ~StartingWeftd() {
    if (pid_ > 0) {
      end_weftd(pid_);
    }
  }
  StartingWeftd(const StartingWeftd&) = delete;
  StartingWeftd& operator=(const StartingWeftd&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool has_ended() {
    if (pid_ > 0 && launch::has_ended(pid_)) {
      pid_ = -1;
    }
    return pid_ <= 0;
  }
  pid_t release() { return std::exchange(pid_, -1); }

 private:
  pid_t pid_;
};

// In the child, between fork and exec.
[[noreturn]] void become(const std::vector<std::string>& words, pid_t parent, bool bound, int log) {
  std::vector<char*> arguments;
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  ::signal(SIGPIPE, SIG_DFL);  // which we ignore
  if (bound) {
    ::setpgid(0, 0);  // Ctrl-C at the terminal is for the programs; weftd ends after them
    die_with(parent, SIGTERM);
  } else {
    // weftd must not keep what this program has inherited: locks, pipes for whose end another
    // process waits, a working directory that is to be unmounted.
    ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    [[maybe_unused]] const int moved = ::chdir("/");
    // Not a session of its own: with autogroups the scheduler divides cores between sessions first,
    // and a core that weftd yields would not go to the programs that wait for it.
    ::setpgid(0, 0);
    ::signal(SIGHUP, SIG_IGN);  // it stays when the terminal goes
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    ::dup2(null, STDIN_FILENO);
    ::dup2(null, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);  // else a reader of our output would wait until weftd ends
  }
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

// Absolute, because the weftd of a named network has another working directory.
std::string absolute(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

// Of the ports only dgram has paths: dgram:LOCAL,REMOTE, maybe with @HOST. weftd says what is wrong
// with one that has another form.
std::string with_absolute_paths(const std::string& port) {
  constexpr std::string_view kDgram = "dgram:";
  const std::size_t comma = port.find(',');
  if (!port.starts_with(kDgram) || comma == std::string::npos || comma == kDgram.size() ||
      comma + 1 == port.size()) {
    return port;
  }
  // The host stays at the end of the remote path, in whose last part it stands.
  return std::string(kDgram) + absolute(port.substr(kDgram.size(), comma - kDgram.size())) + "," +
         absolute(port.substr(comma + 1));
}

// weftd's command line.
std::vector<std::string> words_for(const std::string& directory, const WeftdOptions& options) {
  std::vector<std::string> words{companion("weftd", "emu/daemon"), "--dir", directory};
  if (options.mtu != 0) {
    words.insert(words.end(), {"--mtu", std::to_string(options.mtu)});
  }
  if (!options.direct_rings) {
    words.emplace_back("--no-direct");
  }
  for (const std::string& host : options.host_names) {
    words.insert(words.end(), {"--host", host});
  }
  if (options.topology.empty()) {
    if (options.host_names.empty()) {
      words.insert(words.end(), {"--hosts", std::to_string(options.hosts)});
    }
    words.insert(words.end(), {"--nics", std::to_string(options.nics)});
  } else {
    words.insert(words.end(), {"--topology", absolute(options.topology)});
  }
  words.insert(words.end(), {"--seed", std::to_string(options.seed), "--dilation",
                             std::to_string(options.dilation)});
  if (options.routable) {
    words.emplace_back("--routable");
  } else if (options.ports.empty()) {  // else it may be joined, and all must agree on addresses
    words.emplace_back("--own-block");
  }
  if (options.first_host != 1) {
    words.insert(words.end(), {"--first-host", std::to_string(options.first_host)});
  }
  for (const std::string& port : options.ports) {
    words.insert(words.end(), {"--port", with_absolute_paths(port)});
  }
  if (!options.join_key.empty()) {
    words.insert(words.end(), {"--join-key", absolute(options.join_key)});
  }
  if (!options.events.empty()) {
    words.insert(words.end(), {"--events", absolute(options.events)});
  }
  if (options.metrics_port != 0) {
    words.insert(words.end(), {"--metrics-port", std::to_string(options.metrics_port)});
  }
  if (options.share) {
    words.emplace_back("--share");
  }
  for (const uid_t user : options.other_users) {
    words.insert(words.end(), {"--allow-uid", std::to_string(user)});
  }
  return words;
}

std::string networks_directory() {
  return runtime_directory() + "/weft-" + std::to_string(::geteuid());
}

Result<void> check_own(const std::string& path) {
  struct stat info {};
  if (is_own_directory(path) && ::lstat(path.c_str(), &info) == 0 &&
      (info.st_mode & (S_IRWXG | S_IRWXO)) == 0) {
    return {};
  }
  return fail(
      ErrorCode::not_permitted,
      "'" + path +
          "' is not a directory of this user's alone (a link, another owner, or a "
          "mode other than 0700): remove it, or set XDG_RUNTIME_DIR to a directory of yours");
}

}  // namespace

std::string companion(const std::string& file, const std::string& folder_in_build) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {  // else a file of the working directory would be taken for ours
    throw std::runtime_error("cannot tell where weft is installed: /proc/self/exe: " +
                             error.message());
  }
  const auto folder = self.parent_path();
  const auto prefix = folder.parent_path();
  for (const auto& installed : {folder / file, prefix / "lib/weft" / file}) {
    if (std::filesystem::exists(installed, error)) {
      return installed;
    }
  }
  return prefix.parent_path() / folder_in_build / file;
}

// Waits until weftd answers a question: a socket that exists may be that of a weftd which is still
// opening its ports.
Result<pid_t> start_weftd(const std::string& directory, const WeftdOptions& options, bool bound) {
  const std::vector<std::string> words = words_for(directory, options);
  const std::string log_path = directory + "/weftd.log";
  const srd::UniqueFd log(::open(
      log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  const pid_t parent = ::getpid();
  StartingWeftd weftd(::fork());
  if (weftd.pid() == 0) {
    become(words, parent, bound, log.get());
  }
  const std::string socket = directory + "/attach.sock";
  const auto give_up = std::chrono::steady_clock::now() + kPatienceWithStart;
  std::string said;
  while (!weftd.has_ended() && std::chrono::steady_clock::now() < give_up) {
    check_interrupt();
    // Check the process: another weftd may have taken the directory first.
    if (const auto peer = attach::connect_seqpacket(socket, Duration{0});
        peer && attach::peer_process(peer->get()) == weftd.pid()) {
      const auto answer = ask_weftd(directory, {{"cmd", "counters"}});
      if (answer) {  // its loop runs, with all its ports
        return weftd.release();
      }
      said = answer.error().message;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  if (said.empty()) {
    std::getline(std::ifstream(log_path), said);
  }
  return fail(ErrorCode::io_error, "'" + words[0] + "' did not start in '" + directory + "'" +
                                       (said.empty() ? "" : ": " + said));
}

// weftd answers `stop` before it ends, so the socket is watched until nobody takes calls there.
Result<bool> stop_weftd(const std::string& directory) {
  const auto stopped = ask_weftd(directory, {{"cmd", "stop"}});
  const auto is_there = [&] {
    const auto peer = attach::connect_seqpacket(directory + "/attach.sock");
    return peer || peer.error().code != ErrorCode::not_found;
  };
  const auto patience = std::chrono::steady_clock::now() + kPatienceWithEnd;
  while (stopped && is_there() && std::chrono::steady_clock::now() < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  if (is_there()) {
    return fail(ErrorCode::wrong_state,
                "does not end" + (stopped ? "" : ": " + stopped.error().message));
  }
  return stopped.has_value();
}

// Checks the parent before anything in it is looked at, and the directory before its path is given
// out.
Result<std::string> named_directory(const std::string& name, bool create) {
  if (!fabric::is_node_name(name)) {
    return fail(ErrorCode::invalid_argument,
                "'" + name + "' is no name of a network: " + fabric::kNodeNameRule);
  }
  const std::string parent = networks_directory();
  const std::string path = parent + "/" + name;
  if (create) {
    ::mkdir(parent.c_str(), S_IRWXU);
  }
  struct stat info {};
  const bool has_parent = ::lstat(parent.c_str(), &info) == 0;
  // /tmp is writable for all users, so another one may have made this directory.
  if (has_parent || create) {
    if (auto own = check_own(parent); !own) {
      return tl::unexpected(own.error());
    }
  }
  if (create) {
    ::mkdir(path.c_str(), S_IRWXU);
  }
  if ((!has_parent && !create) || ::lstat(path.c_str(), &info) != 0) {
    return fail(ErrorCode::not_found,
                "there is no network '" + name + "': `weft up " + name + "` makes one");
  }
  if (auto own = check_own(path); !own) {
    return tl::unexpected(own.error());
  }
  return path;
}

std::vector<std::string> networks_there() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(networks_directory(), error)) {
    const std::string name = entry.path().filename().string();
    if (named_directory(name, false)) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> networks_that_are_up() {
  std::vector<std::string> names = networks_there();
  std::erase_if(names, [](const std::string& name) {
    return !ask_weftd(*named_directory(name, false), {{"cmd", "counters"}});
  });
  return names;
}

Result<PrivateWeftd> PrivateWeftd::start(const WeftdOptions& options) {
  auto directory = TemporaryDirectory::create();
  if (!directory) {
    return tl::unexpected(directory.error());
  }
  PrivateWeftd weftd(std::move(*directory));
  const auto pid = start_weftd(weftd.directory(), options, true);
  if (!pid) {
    return tl::unexpected(pid.error());
  }
  weftd.pid_ = *pid;
  return weftd;
}

PrivateWeftd::PrivateWeftd(PrivateWeftd&& other) noexcept
    : directory_(std::move(other.directory_)), pid_(std::exchange(other.pid_, -1)) {}

PrivateWeftd::~PrivateWeftd() {
  if (pid_ > 0) {
    end_weftd(pid_);
  }
}

}  // namespace weft::launch
