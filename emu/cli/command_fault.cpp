// Owns `weft fault` and `weft heal`: troubling a network that is up, and ending that.
//
// `weft impair` changes what a link is like; a fault here has a schedule and a number, may concern
// switches and hosts, and adds up with all others.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "emu/cli/commands.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/weftd_process.hpp"

namespace weft::cli {
namespace {

struct Options {
  std::string name;
  std::string text;
  std::uint32_t number = 0;
};

// The fault is weftd's from here on, and outlives this command; its number ends it.
int fault(const Options& options) {
  const std::string directory = unwrap(launch::named_directory(options.name, false));
  const std::uint32_t number = unwrap(launch::apply_fault(directory, options.text));
  fmt::print("fault {1}: weft heal {0} {1}\n", options.name, number);
  return kSuccess;
}

int heal(const Options& options) {
  const std::string directory = unwrap(launch::named_directory(options.name, false));
  (void)unwrap(launch::ask_weftd(directory, {{"cmd", "heal"}, {"fault", options.number}}));
  return kSuccess;
}

}  // namespace

void register_fault(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "fault");
  auto options = std::make_shared<Options>();
  command->add_option("name", options->name, "Name of the network")->required();
  command->add_option("fault", options->text, "What happens to what")->required();
  command->callback([&work, options] { work = [options] { return fault(*options); }; });
}

void register_heal(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "heal");
  auto options = std::make_shared<Options>();
  command->add_option("name", options->name, "Name of the network")->required();
  command->add_option("number", options->number, "What `weft fault` said")->required();
  command->callback([&work, options] { work = [options] { return heal(*options); }; });
}

}  // namespace weft::cli
