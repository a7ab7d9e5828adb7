// Owns `weft env`: a shell becomes a host of a network that is up.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/host_environment.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/cli/weftd_process.hpp"

namespace weft::cli {
namespace {

struct Options {
  std::string name = "default";
  std::string host = "h1";
  std::string device = "efa";
  bool unset = false;
};

// For any shell that knows POSIX: nothing inside single quotes is special.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

// Names of what an earlier `weft env` has set in this shell, and that was not set before.
constexpr const char* kOurs = "WEFT_ENV";

std::vector<std::string> pieces_of(const char* text, const char* separators) {
  std::vector<std::string> pieces;
  const std::string all = text == nullptr ? "" : text;
  for (std::size_t at = 0; (at = all.find_first_not_of(separators, at)) != std::string::npos;) {
    const std::size_t end = std::min(all.find_first_of(separators, at), all.size());
    pieces.push_back(all.substr(at, end - at));
    at = end;
  }
  return pieces;
}

// LD_PRELOAD without our library, whoever else has changed it meanwhile.
std::string foreign_preloads() {
  std::string rest;
  for (const std::string& library : pieces_of(::getenv("LD_PRELOAD"), ": ")) {
    if (!library.ends_with("/libweft-preload.so")) {
      rest += (rest.empty() ? "" : ":") + library;
    }
  }
  return rest;
}

// Makes this process's environment what the shell's was before `weft env`. Returns the names of
// what that had set.
std::vector<std::string> undo() {
  std::vector<std::string> names = pieces_of(::getenv(kOurs), " ");
  for (const std::string& name : names) {
    ::unsetenv(name.c_str());
  }
  if (const std::string rest = foreign_preloads(); rest.empty()) {
    ::unsetenv("LD_PRELOAD");
  } else {
    ::setenv("LD_PRELOAD", rest.c_str(), 1);
  }
  names.emplace_back(kOurs);
  return names;
}

int run_env(const Options& options) {
  const std::string preloaded = ::getenv("LD_PRELOAD") == nullptr ? "" : ::getenv("LD_PRELOAD");
  std::vector<std::string> gone = undo();
  if (options.unset) {
    const char* rest = ::getenv("LD_PRELOAD");
    fmt::print("unset {}\n", fmt::join(gone, " "));
    if (rest != nullptr) {
      fmt::print("export LD_PRELOAD={}\n", shell_quoted(rest));
    } else if (!preloaded.empty()) {
      fmt::print("unset LD_PRELOAD\n");
    }
    return kSuccess;
  }
  const DeviceKind kind = unwrap(parse_device_kind(options.device));
  const std::string directory = unwrap(named_directory(options.name, false));
  const Environment environment = unwrap(equip_host(directory, options.host, kind));
  // A shell that was another host before keeps nothing of that.
  fmt::print("unset {}\n", fmt::join(gone, " "));
  std::string ours;
  for (const auto& [name, value] : environment) {
    fmt::print("export {}={}\n", name, shell_quoted(value));
    if (name != "LD_PRELOAD") {
      ours += (ours.empty() ? "" : " ") + name;
    }
  }
  fmt::print("export {}={}\n", kOurs, shell_quoted(ours));
  return kSuccess;
}

}  // namespace

void register_env(CLI::App& program, Work& work) {
  CLI::App* command =
      program.add_subcommand("env", "Print what makes a shell a host of a network that is up");
  command->footer(
      "Everything started from that shell afterwards sees the host's emulated devices. --unset "
      "takes\n"
      "back exactly what was set: variables that the shell had before stay, also in LD_PRELOAD.\n"
      "Examples:\n"
      "  weft up lab && eval \"$(weft env lab h1)\"\n"
      "  ibv_devinfo\n"
      "  eval \"$(weft env --unset)\"");
  auto options = std::make_shared<Options>();
  command->add_option("name", options->name, "Name of the network")->capture_default_str();
  command->add_option("host", options->host, "Host: h1, h2, ...")->capture_default_str();
  command->add_option("--device", options->device, "efa, efa:PROFILE, or none")
      ->capture_default_str();
  command->add_flag("--unset", options->unset, "Print what undoes it");
  command->callback([&work, options] { work = [options] { return run_env(*options); }; });
}

}  // namespace weft::cli
