// Owns finding out which RDMA software is installed, and which version. Programs are looked for in
// PATH, libraries by loading them, and versions in Debian's package list.
#include "emu/cli/doctor/packages.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "emu/launch/find_program.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

// The first line that a shell command prints, without trailing blanks; empty if it prints nothing
// or cannot run. Only for commands made of constants: nothing is quoted.
std::string ask(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(
      ::popen((command + " 2>/dev/null").c_str(), "r"), ::pclose);
  std::array<char, 512> line{};
  if (pipe == nullptr ||
      std::fgets(line.data(), static_cast<int>(line.size()), pipe.get()) == nullptr) {
    return {};
  }
  std::string text = line.data();
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

// From Debian's package list; elsewhere empty, and the presence of the file has to do.
std::string version_of(const std::string& package) {
  return launch::find_program("dpkg-query").empty()
             ? ""
             : ask("dpkg-query -W -f '${Version}' " + package);
}

// Loading runs the constructors of the library. Those asked for here do nothing that matters to
// this process.
bool library_loads(const char* name) {
  void* const handle = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (handle != nullptr) {
    ::dlclose(handle);
  }
  return handle != nullptr;
}

Finding rdma_core() {
  const bool library = library_loads("libibverbs.so.1");
  const std::string provider = launch::find_provider("efa");
  const std::string version = version_of("libibverbs1");
  const bool good = library && !provider.empty();
  return {
      "rdma-core", good ? Health::good : Health::absent,
      fmt::format("libibverbs {}{}, EFA provider {}", library ? "yes" : "no",
                  version.empty() ? "" : " (" + version + ")", provider.empty() ? "no" : provider),
      "verbs programs on emulated devices use the stock libraries",
      good ? "" : "apt-get install libibverbs1 ibverbs-providers"};
}

// The presence of one program shows that its package is there.
struct Tool {
  const char* topic;
  const char* program;
  const char* package;
  const char* matter;
};
constexpr std::array kTools{
    Tool{"ibv-utils", "ibv_devinfo", "ibverbs-utils", "shows the emulated devices"},
    Tool{"perftest", "ib_send_bw", "perftest", "benchmarks of verbs; try `weft run` with -c SRD"},
    Tool{"libfabric", "fi_pingpong", "libfabric-bin", "libfabric's own test and its efa provider"},
    Tool{"openmpi", "mpirun", "openmpi-bin", "MPI over libfabric's efa provider"},
};

// A tool that is missing is never a fault: weft runs without it.
Finding look_for(const Tool& tool) {
  const std::string path = launch::find_program(tool.program);
  const std::string version = path.empty() ? "" : version_of(tool.package);
  return {tool.topic, path.empty() ? Health::absent : Health::good,
          path.empty() ? fmt::format("no {} here", tool.program)
                       : path + (version.empty() ? "" : " (" + version + ")"),
          tool.matter,
          path.empty() ? fmt::format("optional: apt-get install {}", tool.package) : ""};
}

Finding dpdk() {
  const std::string version =
      launch::find_program("pkg-config").empty() ? "" : ask("pkg-config --modversion libdpdk");
  const bool runtime =
      library_loads("librte_eal.so.23") || library_loads("librte_eal.so.24") || !version.empty();
  return {"dpdk", runtime ? Health::good : Health::absent,
          runtime ? "DPDK " + (version.empty() ? std::string("runtime libraries") : version)
                  : "no DPDK",
          "optional: packets over real NICs, memif, virtio-user; everything else works without",
          runtime ? "" : "apt-get install libdpdk-dev, then build again"};
}

}  // namespace

std::vector<Finding> examine_packages() {
  std::vector<Finding> findings{rdma_core()};
  for (const Tool& tool : kTools) {
    findings.push_back(look_for(tool));
  }
  findings.push_back(dpdk());
  return findings;
}

}  // namespace weft::cli
