// Owns starting and ending a private weftd.
#include "emu/cli/private_weftd.hpp"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "emu/daemon/seqpacket.hpp"
#include "srd/io/posix.hpp"

namespace weft::cli {
namespace {

constexpr auto kPatience = std::chrono::seconds{10};

// In the child, between fork and exec.
[[noreturn]] void become(const std::vector<std::string>& words, pid_t parent) {
  std::vector<char*> arguments;
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  ::setpgid(0, 0);  // an interrupt at the terminal is for the programs; this ends after them
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() == parent) {
    ::execv(arguments[0], arguments.data());
  }
  ::_exit(127);
}

}  // namespace

std::string weftd_path() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto beside = self.parent_path() / "weftd";
  if (std::filesystem::exists(beside, error)) {
    return beside;
  }
  return self.parent_path().parent_path() / "daemon" / "weftd";  // in the build tree
}

Result<PrivateWeftd> PrivateWeftd::start(const Options& options) {
  const char* base = ::getenv("XDG_RUNTIME_DIR");
  std::error_code error;
  std::string path =
      (base != nullptr && std::filesystem::is_directory(base, error) ? base : "/tmp");
  path += "/weft-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    return fail(ErrorCode::io_error, srd::errno_text("making directory '" + path + "'"));
  }
  PrivateWeftd weftd;
  weftd.directory_ = path;
  std::vector<std::string> words{weftd_path(), "--dir", path, "--hosts",
                                 std::to_string(options.hosts)};
  if (!options.direct_rings) {
    words.emplace_back("--no-direct");
  }
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  const pid_t parent = ::getpid();
  weftd.pid_ = ::fork();
  if (weftd.pid_ == 0) {
    become(words, parent);
  }
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (weftd.pid_ > 0 && !emu::connect_seqpacket(weftd.socket())) {
    if (::waitpid(weftd.pid_, nullptr, WNOHANG) == weftd.pid_) {
      weftd.pid_ = -1;
    }
    if (std::chrono::steady_clock::now() > give_up) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  if (weftd.pid_ < 0 || !emu::connect_seqpacket(weftd.socket())) {
    return fail(ErrorCode::io_error, "'" + words[0] + "' did not start");
  }
  return weftd;
}

PrivateWeftd::PrivateWeftd(PrivateWeftd&& other) noexcept
    : directory_(std::exchange(other.directory_, {})), pid_(std::exchange(other.pid_, -1)) {}

PrivateWeftd::~PrivateWeftd() {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  if (!directory_.empty()) {
    std::error_code error;
    std::filesystem::remove_all(directory_, error);
  }
}

}  // namespace weft::cli
