// Owns `weft capture`: frames of a network's links in a file that Wireshark reads.
#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/weftd_process.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

struct Options {
  std::string name;
  std::string file;
  std::vector<std::string> links;
  std::size_t snap_length = 262144;
  std::uint64_t megabytes = 1024;
  bool stop = false;
  bool as_json = false;
};

// One question to weftd, which does the capturing and goes on with it when this command has ended.
// Without a file and without --stop the question is only how the capture fares. A capture that
// lacks frames, because the disk is slower than the network, is a failure: a reader of the file
// must not take it for everything that passed.
int run_capture(const Options& options) {
  const std::string directory = unwrap(launch::named_directory(options.name, false));
  json request{{"cmd", "capture"}};
  if (options.stop) {
    request["stop"] = true;
  } else if (!options.file.empty()) {
    // weftd has another working directory, and writes the file.
    request["start"] = std::filesystem::absolute(options.file).string();
    request["snap_length"] = options.snap_length;
    request["size_limit"] = options.megabytes << 20;
    if (!options.links.empty()) {
      request["links"] = options.links;
    }
  }
  const json capture = unwrap(launch::ask_weftd(directory, request))["capture"];
  // Asking whether nothing is captured is no failure.
  const bool complete = capture.is_null() || capture.value("complete", true);
  if (options.as_json) {
    fmt::print("{}\n", capture.dump());
  } else if (capture.is_null()) {
    fmt::print("no capture is running\n");
  } else {
    const auto note = [&](const char* count, const char* what) {
      const auto number = capture[count].get<std::uint64_t>();
      return number == 0 ? std::string() : fmt::format("; {} more {}", number, what);
    };
    fmt::print("{} {}: {} packets of {} links{}{}\n",
               !options.stop ? "writing"
               : complete    ? "wrote"
                             : "still writing",
               capture["file"].get<std::string>(), capture["packets"].get<std::uint64_t>(),
               capture["links"].get<std::uint64_t>(), note("skipped", "did not fit"),
               note("dropped", "came faster than the disk takes them"));
  }
  if (!complete) {
    complain("weft capture: the disk is behind: frames are missing in the file, or come later\n");
  }
  return complete ? kSuccess : kFailure;
}

}  // namespace

void register_capture(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "capture");
  auto options = std::make_shared<Options>();
  command->add_option("name", options->name, "Name of the network")->required();
  command->add_option("file", options->file, "File to write");
  command->add_option("--link", options->links, "Link or pattern; repeatable")
      ->allow_extra_args(false);
  command->add_option("--snap-length", options->snap_length, "Bytes kept of a frame")
      ->check(CLI::Range(64, 262144))
      ->capture_default_str();
  command->add_option("--megabytes", options->megabytes, "The file grows no further")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_flag("--stop", options->stop, "End it");
  command->add_flag("--json", options->as_json, "One JSON object");
  command->callback([&work, options] { work = [options] { return run_capture(*options); }; });
}

}  // namespace weft::cli
