// Owns what tests of the weft program share: a directory, and networks with names, of one test. The
// program is the one that was just built, called through a shell as a user calls it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/conformance/run_weft.hpp"
#include "tests/support/temporary_folder.hpp"

// For tests in which the address sanitizer itself would be what fails.
#ifdef __SANITIZE_ADDRESS__
#define WEFT_NEEDS_A_PLAIN_BUILD(why) GTEST_SKIP() << "not with sanitizers: " why
#else
#define WEFT_NEEDS_A_PLAIN_BUILD(why) static_cast<void>(0)
#endif

namespace weft::testing {

using nlohmann::json;

// Which block of addresses a network has depends on the others of the machine: 127.B.h.n.
inline std::string without_block(std::string text) {
  const std::string loopback = "127.";
  for (std::size_t at = 0; (at = text.find(loopback, at)) != std::string::npos;) {
    at += loopback.size();
    text.replace(at, text.find_first_not_of("0123456789", at) - at, "B");
  }
  return text;
}

// A directory, and networks with names, of this test alone.
class ProgramTest : public ::testing::Test {
 protected:
  // By number of the process: tests of one build run beside each other on one machine.
  void SetUp() override { name_ = "e2e-" + std::to_string(::getpid()); }
  void TearDown() override {
    if (is_up_) {
      weft("down " + name_);
    }
  }
  // With runs kept in the test's directory and not among the user's. The time only ends what hangs.
  Outcome weft(const std::string& arguments, int seconds = 60) {
    return run_shell("cd " + directory_ + " && WEFT_RUNS=" + directory_ + "/runs timeout " +
                     std::to_string(seconds) + " " WEFT_PROGRAM " " + arguments);
  }
  // Without devices: few of these tests have a stock program that would look for one.
  void up(const std::string& options = "") {
    const Outcome outcome = weft("up " + name_ + " --device none " + options);
    ASSERT_EQ(outcome.code, 0) << outcome.output;
    is_up_ = true;
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name) << text;
  }
  std::string read(const std::string& name) {
    std::ifstream file(directory_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Of output with --json: one object on each line, with lines for people in between.
  static std::vector<json> objects(const std::string& lines) {
    std::vector<json> all;
    std::istringstream text(lines);
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("{")) {
        all.push_back(json::parse(line));
      }
    }
    return all;
  }

  testing::TemporaryFolder folder_;
  const std::string directory_ = folder_.path();
  std::string name_;
  bool is_up_ = false;
};

}  // namespace weft::testing
