// Owns finding processes by their environment, and killing exactly those.
#include "emu/launch/leftovers.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "srd/io/posix.hpp"

namespace weft::launch {
namespace {

// A file of /proc whose words end with zeros; a zero is put before the first one, too.
std::string words_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string(1, '\0') +
         std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

bool belongs_to(const std::filesystem::path& process, const std::string& directory) {
  using namespace std::string_literals;
  return words_of(process / "environ").find("\0WEFT_SOCKET="s + directory + "/") !=
             std::string::npos ||
         words_of(process / "cmdline").find("\0--dir\0"s + directory + "\0"s) != std::string::npos;
}

}  // namespace

void end_processes_of(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    struct stat info {};
    if (name.find_first_not_of("0123456789") != std::string::npos ||
        ::stat(entry.path().c_str(), &info) != 0 || info.st_uid != ::geteuid()) {
      continue;
    }
    const pid_t pid = std::stoi(name);
    // Before it is looked at: a process that gets the number later is not meant.
    const srd::UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (process && pid != ::getpid() && belongs_to(entry.path(), directory)) {
      ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
    }
  }
}

}  // namespace weft::launch
