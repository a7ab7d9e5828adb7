// Owns running stock programs under the weft program, for the conformance tests.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace weft::testing {

// How a shell command ended: its exit code, or 128 and the signal; both output streams, as they
// came.
struct Outcome {
  int code = -1;
  std::string output;
  [[nodiscard]] bool says(const std::string& text) const {
    return output.find(text) != std::string::npos;
  }
};

inline Outcome run_shell(const std::string& command) {
  Outcome outcome;
  std::FILE* const pipe = popen(("{ " + command + "\n} 2>&1").c_str(), "r");
  std::array<char, 4096> piece;
  for (std::size_t length = 0; (length = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;) {
    outcome.output.append(piece.data(), length);
  }
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

// WEFT_PROGRAM is the built program's path, set by the build. Everything is bounded in time.
inline Outcome run_weft(const std::string& arguments, int seconds = 60) {
  return run_shell("timeout " + std::to_string(seconds) + " " WEFT_PROGRAM " run " + arguments);
}

// Whether this machine has the program.
inline bool has(const std::string& program) { return run_shell("command -v " + program).code == 0; }

// Tests run side by side, and stock programs listen on fixed ports unless they are told otherwise.
// Below the range from which the kernel gives ports to connecting sockets.
inline std::string own_port() {
  static int next = 0;
  return std::to_string(10000 + (getpid() * 7 + next++ * 1009) % 20000);
}

}  // namespace weft::testing

#define WEFT_NEEDS(program)                                                         \
  if (!weft::testing::has(program)) {                                               \
    GTEST_SKIP() << "this machine has no " program "; install it to run this test"; \
  }

// A program of ours that was not built, because a library that it needs was missing.
#define WEFT_NEEDS_BUILT(path, package)                               \
  if (std::string(path).empty()) {                                    \
    GTEST_SKIP() << "this tree was configured without " package       \
                    "; install it and configure "                     \
                    "again (./weft test does both) to run this test"; \
  }
