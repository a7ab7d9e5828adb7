// Owns `weft fault` and `weft heal`: troubling a network that is up, and ending that.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "emu/cli/commands.hpp"
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
  CLI::App* command = program.add_subcommand("fault", "Trouble a network that is up");
  command->footer(
      "The keys are those of faults in scenario files. On a network without a topology every NIC "
      "has\n"
      "a link h<n>->fabric and one back.\n"
      "Examples:\n"
      "  weft fault lab 'link: h1->fabric, loss: 0.01'\n"
      "  weft fault lab 'link: h*-fabric, extra_delay: 50us, jitter: 10us, lasts: 5s'\n"
      "  weft fault lab 'link: h2->fabric, down: true, at: 1s, lasts: 200ms'\n"
      "  weft heal lab 0");
  auto options = std::make_shared<Options>();
  command->add_option("name", options->name, "Name of the network")->required();
  command->add_option("fault", options->text, "What happens to what")->required();
  command->callback([&work, options] { work = [options] { return fault(*options); }; });
}

void register_heal(CLI::App& program, Work& work) {
  CLI::App* command = program.add_subcommand("heal", "End a fault");
  command->footer("Example:\n  weft heal lab 0    what `weft fault` called fault 0");
  auto options = std::make_shared<Options>();
  command->add_option("name", options->name, "Name of the network")->required();
  command->add_option("number", options->number, "What `weft fault` said")->required();
  command->callback([&work, options] { work = [options] { return heal(*options); }; });
}

}  // namespace weft::cli
