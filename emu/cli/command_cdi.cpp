// Owns `weft cdi`: a network's NICs as devices that container engines can give to containers.
//
// The files name paths below the network's directory, so they hold for this network while it is up;
// `weft down` removes them (launch::remove_cdi()).
#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/launch/cdi.hpp"
#include "emu/launch/host_environment.hpp"
#include "emu/launch/weftd_process.hpp"

namespace weft::cli {
namespace {

struct Options {
  std::string name = "default";
  std::string output = launch::kCdiFolder;
  std::vector<std::string> kinds;
};

int run_cdi(const Options& options) {
  const std::string directory = unwrap(launch::named_directory(options.name, false));
  const auto kinds = options.kinds.empty() ? launch::kinds_of_devices() : options.kinds;
  for (const std::string& file :
       unwrap(launch::write_cdi(directory, options.name, kinds, options.output))) {
    fmt::print("{}\n", file);
  }
  return kSuccess;
}

}  // namespace

void register_cdi(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "cdi");
  auto options = std::make_shared<Options>();
  command->add_option("name", options->name, "Name of the network")->capture_default_str();
  command->add_option("--output", options->output, "Folder for the files")->capture_default_str();
  command
      ->add_option("--device", options->kinds,
                   launch::known_devices() + "; may be repeated. Default: all that fit the network")
      ->allow_extra_args(false);
  command->callback([&work, options] { work = [options] { return run_cdi(*options); }; });
}

}  // namespace weft::cli
