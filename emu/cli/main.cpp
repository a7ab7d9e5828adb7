// Owns the `weft` program: parses the command line, runs one command, turns its outcome into an
// exit code.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <exception>

#include "emu/cli/commands.hpp"

namespace weft::cli {
namespace {

// No command was given, or none of ours: says which, and where the list is.
int explain_usage(const CLI::App& program) {
  const auto unknown = program.remaining();
  if (unknown.empty()) {
    fmt::print(stderr, "{}", program.help());
  } else {
    fmt::print(stderr, "weft: there is no command '{}'; `weft --help` lists them\n",
               unknown.front());
  }
  return kUsage;
}

int run(int argc, char** argv) {
  CLI::App program{"weft: unmodified RDMA programs on machines without RDMA hardware", "weft"};
  program.set_version_flag("--version", "weft " WEFT_VERSION);
  Work work;
  register_commands(program, work);
  program.allow_extras();  // last, as commands inherit it: their own unknown arguments are errors
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? kSuccess : kUsage;
  }
  return work ? work() : explain_usage(program);
}

}  // namespace
}  // namespace weft::cli

int main(int argc, char** argv) {
  try {
    return weft::cli::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "weft: {}\n", error.what());
    return weft::cli::kFailure;
  }
}
