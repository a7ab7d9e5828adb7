// Owns the stock RDMA program that `weft demo` shows at work, if this machine has one.
#pragma once

#include <string>
#include <vector>

#include "emu/launch/host_environment.hpp"

namespace weft::cli {

struct DemoProgram {
  launch::DeviceKind device;       // none: no program can run, `missing` says why
  std::vector<std::string> words;  // what runs on h1; the same with h1's address on h2 if `pair`
  bool pair = false;
  std::string missing;
};

// How the program ended.
struct DemoProgramEnd {
  bool passed = true;  // also if there was nothing to run
  std::string note;    // empty: nothing ran
  std::string output;
};

// The first of ib_send_bw, fi_pingpong and ibv_devinfo that is installed.
[[nodiscard]] DemoProgram find_demo_program();
// Runs to the end, half a minute at the most, and shows the output unless `quiet`. Throws
// std::runtime_error, and launch::Interrupted if a signal asked to end meanwhile.
[[nodiscard]] DemoProgramEnd run_demo_program(const DemoProgram& program,
                                              const std::string& directory, bool quiet);

}  // namespace weft::cli
