// Owns the arguments of EAL, DPDK's runtime, which a process can start only once.
//
// What the user gives (--eal) is left alone, and completed: one core, memory without files that
// outlive the process, no PCI device that was not named. Huge pages are used if they are free;
// without them everything works, slower.
#include "srd/io/dpdk/environment.hpp"

#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <vector>

namespace weft::srd::dpdk {
namespace {

constexpr int kHugeMegabytes = 128;
constexpr int kPlainMegabytes = 256;

bool free_huge_pages() {
  std::ifstream file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  long pages = 0;
  return file >> pages && pages >= kHugeMegabytes / 2;
}

// EAL wants to know which cores it may use; of ours it needs only one, since no DPDK thread runs
// there.
int first_core() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) {
      return core;
    }
  }
  return 0;
}

// What the caller gives in config.eal stands instead of our own choice.
std::vector<std::string> arguments_of(const DpdkConfig& config) {
  const auto says = [&](std::initializer_list<const char*> any) {
    return std::any_of(any.begin(), any.end(), [&](const char* word) {
      return std::any_of(config.eal.begin(), config.eal.end(), [&](const std::string& given) {
        return given == word || given.rfind(std::string(word) + "=", 0) == 0;
      });
    });
  };
  std::vector<std::string> words{"weft"};
  const auto add = [&](std::initializer_list<std::string> more) {
    words.insert(words.end(), more);
  };
  if (!says({"-l", "-c", "--lcores"})) {
    add({"-l", std::to_string(first_core())});
  }
  if (!says({"--no-huge", "--in-memory", "-m", "--socket-mem", "--huge-dir", "--legacy-mem"})) {
    if (free_huge_pages()) {
      add({"--in-memory", "--single-file-segments", "-m", std::to_string(kHugeMegabytes)});
    } else {
      add({"--no-huge", "--no-shconf", "-m", std::to_string(kPlainMegabytes)});
    }
  }
  if (!says({"-a", "--allow", "-b", "--block", "--no-pci"})) {
    if (is_virtual(config.devargs)) {
      add({"--no-pci"});  // never touch a device that was not named
    } else {
      add({"-a", config.devargs});
    }
  }
  if (!says({"--log-level"})) {
    add({"--log-level=*:4"});
  }
  add({"--no-telemetry"});
  words.insert(words.end(), config.eal.begin(), config.eal.end());
  return words;
}

std::string start(const DpdkConfig& config) {
  std::vector<std::string> words = arguments_of(config);
  std::vector<char*> arguments;
  std::string line;
  for (std::string& word : words) {
    arguments.push_back(word.data());
    line += " " + word;
  }
  // EAL pins the thread that starts it: restore its affinity. Drivers write to sockets of their
  // peers: a peer that is gone must not end the program by SIGPIPE.
  cpu_set_t affinity;
  ::pthread_getaffinity_np(::pthread_self(), sizeof affinity, &affinity);
  struct sigaction broken_pipe {};
  if (::sigaction(SIGPIPE, nullptr, &broken_pipe) == 0 && broken_pipe.sa_handler == SIG_DFL) {
    ::signal(SIGPIPE, SIG_IGN);
  }
  const int started = ::rte_eal_init(static_cast<int>(arguments.size()), arguments.data());
  ::pthread_setaffinity_np(::pthread_self(), sizeof affinity, &affinity);
  return started >= 0 ? std::string()
                      : "DPDK: EAL does not start (" + std::string(rte_strerror(rte_errno)) +
                            ") with" + line;
}

}  // namespace

bool is_virtual(const std::string& devargs) {
  return devargs.rfind("net_", 0) == 0 || devargs.rfind("eth_", 0) == 0 ||
         devargs.rfind("vdev:", 0) == 0;
}

Result<void> start_environment(const DpdkConfig& config) {
  static std::mutex mutex;
  static std::optional<std::string> failure;
  const std::lock_guard guard(mutex);
  if (!failure) {
    failure = start(config);
  }
  if (!failure->empty()) {
    return fail(ErrorCode::io_error, *failure);
  }
  return {};
}

}  // namespace weft::srd::dpdk
