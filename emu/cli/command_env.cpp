// Owns `weft env`: a shell becomes a host of a network that is up.
#include <fmt/core.h>

#include <memory>

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
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

int run_env(const Options& options) {
  if (options.unset) {
    fmt::print("unset WEFT_SOCKET WEFT_HOST WEFT_DEVICES LD_PRELOAD\n");
    return kSuccess;
  }
  const DeviceKind kind = unwrap(parse_device_kind(options.device));
  const std::string directory = unwrap(named_directory(options.name, false));
  for (const auto& [name, value] : unwrap(equip_host(directory, options.host, kind))) {
    fmt::print("export {}={}\n", name, quoted(value));
  }
  return kSuccess;
}

}  // namespace

void register_env(CLI::App& program, Work& work) {
  CLI::App* command =
      program.add_subcommand("env", "Print what makes a shell a host of a network that is up");
  command->footer(
      "Everything started from that shell afterwards sees the host's emulated devices.\n"
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
