// Owns the `weft` program: parses the command line, runs one command, turns its outcome into an
// exit code.
#include <fmt/core.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <system_error>

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

std::size_t after_dashes = 0;

int run(int argc, char** argv) {
  char** const end = argv + argc;
  char** const dashes = std::find(argv, end, std::string("--"));
  after_dashes = dashes == end ? 0 : static_cast<std::size_t>(end - dashes) - 1;
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

std::size_t words_after_dashes() { return after_dashes; }

}  // namespace weft::cli

int main(int argc, char** argv) {
  // Whoever reads our output may leave; then networks and directories are still to be cleared away.
  ::signal(SIGPIPE, SIG_IGN);
  try {
    return weft::cli::run(argc, argv);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::broken_pipe) {
      return 128 + SIGPIPE;  // as if the signal had done it
    }
    fmt::print(stderr, "weft: {}\n", error.what());
    return weft::cli::kFailure;
  } catch (const std::exception& error) {
    fmt::print(stderr, "weft: {}\n", error.what());
    return weft::cli::kFailure;
  }
}
