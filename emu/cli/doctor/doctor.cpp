// Owns the examination of the machine: the kernel's part.
//
// Each function looks at one thing and returns a Finding: whether it is good, what is there, and
// what is lost without it or what to do. Things are tried out rather than looked up where that is
// harmless, because containers and kernels refuse what their configuration seems to allow.
#include "emu/cli/doctor/doctor.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "emu/cli/doctor/packages.hpp"
#include "emu/launch/namespaces.hpp"
#include "emu/launch/weftd_process.hpp"
#include "srd/base/joined.hpp"
#include "srd/io/posix.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Kernel, user and container: what explains most other findings.
Finding who_and_where() {
  utsname name{};
  ::uname(&name);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  const int cores = CPU_COUNT(&allowed);
  std::string capabilities = "none";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("CapEff:")) {
      // The number follows the tab, in hexadecimal.
      const auto mask = std::stoull(line.substr(8), nullptr, 16);
      capabilities = mask == 0 ? "no capability" : fmt::format("capabilities {:#x}", mask);
    }
  }
  return {"machine", cores >= 2 ? Health::good : Health::limited,
          fmt::format("{} {}, {} core{}, user {}, {}", name.sysname, name.release, cores,
                      cores == 1 ? "" : "s", ::geteuid(), capabilities),
          cores >= 2 ? "every program polls for itself; more programs than cores share by yielding"
                     : "two ends and weftd take turns on one core: all works, latency is that of "
                       "the scheduler",
          ""};
}

// Tries out what attaching does: rings live in memory that cannot be shrunk under its reader
// (sealed), an eventfd is the doorbell, and both travel over a seqpacket socket.
Finding shared_memory() {
  const srd::UniqueFd memory(static_cast<int>(
      ::syscall(SYS_memfd_create, "weft-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  const bool sealed = memory && ::ftruncate(memory.get(), 4096) == 0 &&
                      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0;
  const srd::UniqueFd bell(::eventfd(0, EFD_CLOEXEC));
  int pair[2] = {-1, -1};
  const bool packets = ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0;
  const srd::UniqueFd one(pair[0]);
  const srd::UniqueFd other(pair[1]);
  const bool good = sealed && bell && packets;
  return {"rings", good ? Health::good : Health::broken,
          fmt::format("sealed memfd {}, eventfd {}, unix seqpacket sockets {}",
                      sealed ? "yes" : "no", bell ? "yes" : "no", packets ? "yes" : "no"),
          "programs and weftd pass packets through shared memory",
          good ? "" : "allow memfd_create, eventfd2 and AF_UNIX in the sandbox's seccomp profile"};
}

// weftd notices the end of a process by its pidfd.
Finding process_handles() {
  const srd::UniqueFd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  return {"pidfd", self ? Health::good : Health::limited,
          self ? "pidfd_open works" : "no pidfd_open: " + std::string(std::strerror(errno)),
          "weftd notices the end of a program at once, even if a child keeps its socket open",
          self ? "" : "nothing: the end of the socket tells, too"};
}

// A process needs some descriptors for each open device file and each ring; nothing is pinned. 256
// is enough for a program with a few devices.
Finding limits() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  rlimit locked{};
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  const bool unlimited = locked.rlim_cur == RLIM_INFINITY;
  const std::string memlock =
      unlimited ? "unlimited" : fmt::format("{} KiB", locked.rlim_cur / 1024);
  const bool few = files.rlim_cur < 256;
  return {"limits", few ? Health::limited : Health::good,
          fmt::format("memlock {}, open files {}", memlock, files.rlim_cur),
          "emulated devices pin nothing, so a small memlock is no obstacle here (on hardware it "
          "makes ibv_reg_mr fail with ENOMEM)",
          few ? "raise it: ulimit -n 1024" : ""};
}

// Huge pages, which only DPDK uses.
Finding huge_pages() {
  std::string sizes;
  long total = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/kernel/mm/hugepages", error)) {
    const long count = std::atol(first_line(entry.path() / "nr_hugepages").c_str());
    total += count;
    sizes += (sizes.empty() ? "" : ", ") +
             fmt::format("{} of {}", count, entry.path().filename().string().substr(10));
  }
  bool mounted = false;
  std::ifstream mounts("/proc/mounts");
  for (std::string line; std::getline(mounts, line);) {
    mounted = mounted || line.find(" hugetlbfs ") != std::string::npos;
  }
  if (sizes.empty()) {
    sizes = "the kernel offers none";
  }
  return {"hugepages", total > 0 && mounted ? Health::good : Health::absent,
          sizes + (mounted ? ", hugetlbfs is mounted" : ", hugetlbfs is not mounted"),
          "only DPDK wants them; everything else runs on ordinary pages, and DPDK runs with "
          "--no-huge",
          total > 0 && mounted ? ""
                               : "for DPDK on a NIC, as root: echo 512 > "
                                 "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages; mount -t "
                                 "hugetlbfs none /dev/hugepages"};
}

// Whether try_it() succeeds in a child process: the calls asked about move the caller into other
// namespaces, and this process must stay in its own.
template <class Try>
bool works(const Try& try_it) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::_exit(try_it() ? 0 : 1);
  }
  int status = 1;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Finding namespaces() {
  // In this order: what an ordinary user can do, what root can do, and what `weft run` really does,
  // which also needs the loopback interface to come up.
  const bool user = works([] { return ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0; });
  const bool plain = works([] { return ::unshare(CLONE_NEWNET) == 0; });
  const bool entered = works([] { return launch::enter_private_network().has_value(); });
  std::string reason;
  if (!user && first_line("/proc/sys/kernel/unprivileged_userns_clone") == "0") {
    reason = " (kernel.unprivileged_userns_clone is 0)";
  } else if (!user && first_line("/proc/sys/user/max_user_namespaces") == "0") {
    reason = " (user.max_user_namespaces is 0)";
  }
  return {"namespaces", entered ? Health::good : Health::absent,
          fmt::format("user + network namespace {}{}, network namespace alone {}{}",
                      user ? "yes" : "no", reason, plain ? "yes" : "no",
                      entered || !(user || plain) ? "" : ", but its loopback cannot be set up"),
          "emulated hosts can have a network of their own; without, they use loopback addresses "
          "(127.b.h.n)",
          entered         ? ""
          : user || plain ? "apt-get install iproute2"
                          : "as root: sysctl kernel.unprivileged_userns_clone=1 "
                            "user.max_user_namespaces=1000, or a container runtime that allows "
                            "them"};
}

// Whether taps can be made. Opening the device needs a right beyond the existence of the file, so
// both are told.
Finding tap() {
  const srd::UniqueFd device(::open("/dev/net/tun", O_RDWR | O_CLOEXEC));
  const bool exists = fs::exists("/dev/net/tun");
  return {"tun", device ? Health::good : Health::absent,
          device   ? "/dev/net/tun opens"
          : exists ? "/dev/net/tun is there but does not open: " + std::string(std::strerror(errno))
                   : "there is no /dev/net/tun",
          "needed for taps: the kernel's own network stack as a host of the emulated network",
          device ? "" : "as root: modprobe tun; in a container: --device /dev/net/tun"};
}

// Whether this kernel could run the kernel's own soft-RoCE beside ours.
Finding soft_roce() {
  const bool rxe = fs::exists("/sys/module/rdma_rxe");
  const bool modules = fs::exists("/proc/modules");
  utsname name{};
  ::uname(&name);
  const bool file =
      fs::exists(std::string("/lib/modules/") + name.release + "/kernel/drivers/infiniband/sw/rxe");
  return {"kernel-rxe", rxe || file ? Health::good : Health::absent,
          rxe       ? "the kernel's own soft-RoCE is loaded"
          : file    ? "the kernel's soft-RoCE can be loaded: modprobe rdma_rxe"
          : modules ? "this kernel has no rdma_rxe module"
                    : "this kernel has no rdma_rxe, and loads no modules",
          "not needed: weft's devices are its own; only comparisons with the kernel want it", ""};
}

// RDMA devices of the kernel. Having them is no fault and lacking them neither: emulated devices
// replace them for programs under `weft run`.
Finding real_devices() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/class/infiniband", error)) {
    names.push_back(entry.path().filename().string());
  }
  return {"rdma-devices", Health::good,
          names.empty() ? "no RDMA device of the kernel" : "the kernel has " + joined(names, ", "),
          names.empty() ? "programs see only emulated ones"
                        : "programs under `weft run` see the emulated ones instead",
          ""};
}

// EPERM and EACCES: the kernel knows the address family and refuses this user.
Finding af_xdp() {
  const srd::UniqueFd socket(::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
  const bool known = socket || errno == EPERM || errno == EACCES;
  return {"af-xdp", Health::good, known ? "the kernel has AF_XDP" : "the kernel has no AF_XDP",
          "not needed: nothing in weft uses it", ""};
}

// A build without libibverbs-dev has no preload library: then weft still simulates and measures.
Finding own_parts() {
  std::string missing;
  for (const auto& [file, folder] :
       {std::pair{"weftd", "emu/daemon"}, std::pair{"libweft-preload.so", "integration/preload"}}) {
    std::error_code error;
    if (!fs::exists(launch::companion(file, folder), error)) {
      missing += (missing.empty() ? "" : ", ") + std::string(file);
    }
  }
  const bool daemon = missing.find("weftd") == std::string::npos;
  return {"weft",
          missing.empty() ? Health::good
          : daemon        ? Health::limited
                          : Health::broken,
          missing.empty() ? "weftd and the preload library are built" : "missing: " + missing,
          "weftd is the network; the preload library shows emulated devices to programs",
          missing.empty() ? "" : "install libibverbs-dev and build again: ./weft build"};
}

}  // namespace

const char* to_string(Health health) {
  constexpr const char* kNames[] = {"good", "limited", "absent", "broken"};
  return kNames[static_cast<std::size_t>(health)];
}

bool can_run(const std::vector<Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.health == Health::broken; });
}

// What explains other findings comes first; what most people do not need comes last.
std::vector<Finding> examine_machine() {
  std::vector<Finding> findings{who_and_where(), own_parts(), shared_memory(), process_handles(),
                                limits()};
  for (Finding& finding : examine_packages()) {
    findings.push_back(std::move(finding));
  }
  for (const auto examine : {namespaces, tap, huge_pages, soft_roce, real_devices, af_xdp}) {
    findings.push_back(examine());
  }
  return findings;
}

}  // namespace weft::cli
