// Owns the `weft` program: parses the command line, runs one command, turns its outcome into an
// exit code.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/output.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/write_signals.hpp"
#include "emu/options/option_format.hpp"

namespace weft::cli {
namespace {

// No command was given, or none of ours: says which, and where the list is.
int explain_usage(const CLI::App& program) {
  const auto unknown = program.remaining();
  if (unknown.empty()) {
    complain("{}", program.help());
  } else {
    complain("weft: there is no command '{}'; `weft --help` lists them\n", unknown.front());
  }
  return kUsage;
}

// Commands whose words after the dashes are another program's.
constexpr std::string_view kForAnother[] = {"run", "exec", "matrix", "lab", "softroce"};

// See words_after_dashes(); set once, before the command line is parsed.
std::span<char* const> after_dashes;

// Parses the command line, then runs the command. CLI11's exceptions are caught around the parsing
// alone, so only a wrong command line becomes kUsage here.
int run(int argc, char** argv) {
  char** const end = argv + argc;
  char** const dashes = std::find(argv, end, std::string("--"));
  after_dashes = {dashes == end ? end : dashes + 1, end};
  CLI::App program{"weft: unmodified RDMA programs on machines without RDMA hardware", "weft"};
  program.formatter(std::make_shared<options::OptionFormat>());  // which commands inherit
  program.set_version_flag("--version", "weft " WEFT_VERSION);
  Work work;
  register_commands(program, work);
  // One command: what follows it is its own, also a network that is called as another command is.
  program.require_subcommand(0, 1);
  program.allow_extras();  // last, as commands inherit it: their own unknown arguments are errors
  try {
    // These commands take their words by words_after_dashes(); CLI11 would make lists of words in
    // brackets.
    const bool for_another =
        argc > 1 &&
        std::ranges::find(kForAnother, std::string_view(argv[1])) != std::end(kForAnother);
    program.parse(for_another ? static_cast<int>(dashes - argv) : argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? kSuccess : kUsage;
  }
  return work ? work() : explain_usage(program);
}

// A standard stream that is closed would be the number of the next file that is opened, and what is
// said would be written into that file.
void open_standard_streams() {
  int fd = -1;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) {
    ::close(fd);
  }
}

}  // namespace

std::span<char* const> words_after_dashes() { return after_dashes; }

}  // namespace weft::cli

int main(int argc, char** argv) {
  weft::cli::open_standard_streams();
  // The reader of our output may leave early, or a file become too large; networks and directories
  // still have to be removed then.
  weft::launch::ignore_write_signals();
  ::signal(SIGCHLD, SIG_DFL);  // ignored, it would hide how our children end
  try {
    return weft::cli::end_output(weft::cli::run(argc, argv));
  } catch (const weft::launch::Interrupted& interrupted) {
    return 128 + interrupted.signal();
  } catch (const std::exception& error) {
    if (const int signal = weft::launch::pending_interrupt(); signal != 0) {
      return 128 + signal;  // it broke off what has failed
    }
    const auto* system = dynamic_cast<const std::system_error*>(&error);
    if (system != nullptr && system->code() == std::errc::broken_pipe) {
      return 128 + SIGPIPE;  // as if the signal had done it
    }
    weft::cli::complain("weft: {}\n", error.what());
    return weft::cli::kFailure;
  }
}
