// Owns the search for stock RDMA programs and a short run of one: the last act of `weft demo`,
// which shows that unmodified programs use the same network. Without such programs it says which
// packages have them.
#include "emu/cli/demo/program.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "emu/cli/unwrap.hpp"
#include "emu/launch/find_program.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/program_group.hpp"
#include "emu/launch/weftd_process.hpp"
#include "srd/base/joined.hpp"

namespace weft::cli {
namespace {

using namespace std::chrono_literals;

constexpr const char* kPackages =
    "install perftest, ibverbs-utils and ibverbs-providers to see one (`./weft setup rdma`)";

bool has(const char* program) { return !launch::find_program(program).empty(); }

}  // namespace

DemoProgram find_demo_program() {
  DemoProgram program;
  if (!std::filesystem::exists(launch::companion("libweft-preload.so", "integration/preload"))) {
    program.missing = "weft was built without libibverbs-dev, which emulated devices need";
    return program;
  }
  // The port is of the real machine, which two demos at the same time share: each takes one by its
  // process id.
  const std::string port = std::to_string(20000 + ::getpid() % 20000);
  if (has("ib_send_bw")) {
    program.words = {"ib_send_bw", "-c",   "SRD", "-d",   "{h1.dev}", "-x", "0",
                     "-s",         "4096", "-n",  "2000", "-p",       port};
    program.pair = true;
  } else if (has("fi_pingpong")) {
    program.words = {"fi_pingpong", "-p", "efa", "-e", "rdm", "-I", "100", "-B", port};
    program.pair = true;
  } else if (has("ibv_devinfo")) {
    program.words = {"ibv_devinfo"};
  } else {
    program.missing = std::string("no RDMA program is installed; ") + kPackages;
    return program;
  }
  auto device = launch::parse_device_kind("efa");
  if (!device) {
    program.missing = device.error().message;
    return program;
  }
  program.device = std::move(*device);
  return program;
}

DemoProgramEnd run_demo_program(const DemoProgram& program, const std::string& directory,
                                bool quiet) {
  DemoProgramEnd end;
  if (!program.missing.empty()) {
    if (!quiet) {
      fmt::print("\nskipped the unmodified RDMA program: {}\n", program.missing);
    }
    return end;
  }
  end.note =
      joined(program.words, " ") + (program.pair ? ", then the same with {h1.ip} on h2" : "");
  if (!quiet) {
    fmt::print("\nan unmodified RDMA program on the same network: {}\n", end.note);
    std::fflush(stdout);
  }
  launch::ProgramGroup group;
  group.set_output([&](std::size_t stream, const std::string& text) {
    end.output += text;
    if (!quiet) {
      std::fputs(text.c_str(), stream == 0 ? stdout : stderr);
    }
  });
  for (const std::string host : {"h1", "h2"}) {
    launch::Program one;
    one.label = host;
    one.environment = unwrap(launch::equip_host(directory, host, program.device));
    for (const std::string& word : program.words) {
      one.words.push_back(unwrap(launch::fill_placeholders(directory, word, program.device)));
    }
    if (host == "h2") {
      if (!program.pair) {
        break;
      }
      // The client must not call before the server listens.
      group.wait_until([&] { return group.is_serving(0); }, 5s);
      // fi_pingpong alone has such an option: -B is the port that a server listens on, -P the one
      // that a client calls.
      std::replace(one.words.begin(), one.words.end(), std::string("-B"), std::string("-P"));
      one.words.push_back(unwrap(launch::fill_placeholders(directory, "{h1.ip}", program.device)));
    }
    unwrap(group.start(one));
  }
  for (const launch::ProgramEnd& one : group.finish(2s, 30s)) {
    end.passed = end.passed && one.code == 0;
  }
  if (group.interrupt() != 0) {
    throw launch::Interrupted(group.interrupt());
  }
  return end;
}

}  // namespace weft::cli
