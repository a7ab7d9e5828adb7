// Owns `weft softroce`: what its command line means. What the commands do is in softroce/vm.cpp.
//
// A shell sees this machine's files unless told otherwise. A command and the self-test see those of
// the image, so that they come out the same on every machine.
#include <memory>
#include <string>

#include "emu/cli/commands.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/softroce/vm.hpp"

namespace weft::cli {
namespace {

// The options that `vm` and `shell` have in common.
void add_guest_options(CLI::App& command, VmOptions& options) {
  command.add_option("--network", options.network,
                     "A network that is up, with --routable and a dgram port; else one of its own");
  command.add_option("--kernel", options.kernel, "default, 6.1, 6.12, or a package of Debian's")
      ->capture_default_str();
  command
      .add_option("--root", options.root,
                  "A folder of this machine whose files the guest sees instead of the image's, "
                  "such as /; what it writes there is lost with it")
      ->capture_default_str();
  command.add_option("--memory", options.memory_mib, "Of the guest, in MiB")
      ->check(CLI::Range(192, 65536))
      ->capture_default_str();
  command.add_flag("--outside", options.outside,
                   "A second NIC, at which 10.0.2.2 is this machine's loopback");
  command.add_option("--capture", options.capture,
                     "A file for all frames of the guest's NIC, with their ICRCs, as pcap");
  command
      .add_option("--forward", options.forwards,
                  "This TCP port of this machine's loopback is the guest's; implies --outside")
      ->allow_extra_args(false);
}

void add_vm(CLI::App& softroce, Work& work) {
  auto options = std::make_shared<VmOptions>();
  CLI::App* vm =
      softroce.add_subcommand("vm", "Run a command in a guest; without one, a self-test");
  add_guest_options(*vm, *options);
  vm->add_option("--host", options->host, "Which host the guest is; default: the next number");
  vm->add_option("--timeout", options->timeout_s,
                 "Seconds after which the guest is ended; 0: never");
  vm->add_option("command", options->words, "After `--`: the command")->expected(-1);
  vm->callback([&work, options] {
    // CLI11 has not seen them (main.cpp): they may begin with dashes of their own.
    const auto words = words_after_dashes();
    options->words.assign(words.begin(), words.end());
    work = [options] { return run_vm(*options); };
  });
}

void add_shell(CLI::App& softroce, Work& work) {
  auto options = std::make_shared<VmOptions>();
  options->shell = true;
  options->root = "/";
  CLI::App* shell = softroce.add_subcommand("shell", "A shell in a guest, on this terminal");
  add_guest_options(*shell, *options);
  shell->add_option("host", options->host, "Which host the guest is; default: the next number");
  shell->callback([&work, options] { work = [options] { return run_vm(*options); }; });
}

void add_host(CLI::App& softroce, Work& work) {
  CLI::App* host = softroce.add_subcommand(
      "host", "Soft-RoCE of this machine's own kernel, on a virtual cable of its own");
  host->require_subcommand(1);
  auto driver = std::make_shared<std::string>("rxe");
  const auto add = [&](const std::string& action, const char* text) {
    CLI::App* command = host->add_subcommand(action, text);
    command->add_option("--driver", *driver, "rxe, or siw for iWARP")
        ->check(CLI::IsMember({"rxe", "siw"}))
        ->capture_default_str();
    command->callback([&work, driver, action] {
      work = [driver, action] { return run_host_helper(action, *driver); };
    });
  };
  add("up", "Make the device");
  add("down", "Undo what `up` did, and nothing else");
  add("status", "Say what is there, and what is missing");
}

}  // namespace

void register_softroce(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "softroce");
  command->require_subcommand(1);
  add_vm(*command, work);
  add_shell(*command, work);
  add_host(*command, work);
  CLI::App* status = command->add_subcommand("status", "Say what is there, and what is missing");
  status->callback([&work] { work = [] { return show_softroce_status(); }; });
}

}  // namespace weft::cli
