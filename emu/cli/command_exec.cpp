// Owns `weft exec`: a program on a host of a network that is up, named or chosen for a launcher.
//
// A launcher such as mpirun starts the same command line on behalf of every rank; which host each
// becomes follows from the rank in its environment. This process becomes the program: signals,
// terminal and exit code need no passing on.
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/host_environment.hpp"
#include "emu/launch/weftd_process.hpp"
#include "emu/launch/write_signals.hpp"
#include "srd/io/posix.hpp"

namespace weft::cli {
namespace {

struct Options {
  std::string name;
  std::string host;
  const CLI::Option* name_option = nullptr;
  const CLI::Option* host_option = nullptr;
  std::string device;
  std::string names;
  std::vector<std::string> words;
};

// Set by Open MPI, PMIx, MPICH and its relatives, and Slurm for each process that they start.
constexpr std::array kRankVariables{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                    "SLURM_PROCID"};

std::string variable(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

// Tells network, host and command apart. Network and host may be left out before the `--`; on a
// command line without `--` the first two words are network and host, and the rest is the command.
void sort_words(Options& options) {
  std::vector<std::string> all;
  for (const auto& [option, word] : {std::pair(options.name_option, options.name),
                                     std::pair(options.host_option, options.host)}) {
    if (option->count() != 0) {
      all.push_back(word);
    }
  }
  all.insert(all.end(), options.words.begin(), options.words.end());
  const auto after = words_after_dashes();
  const std::size_t named = std::min<std::size_t>(all.size(), 2);
  options.name = named > 0 ? all[0] : "";
  options.host = named > 1 ? all[1] : "";
  all.insert(all.end(), after.begin(), after.end());
  options.words.assign(all.begin() + static_cast<std::ptrdiff_t>(named), all.end());
}

// The network if the command line names none: that of WEFT_NETWORK, or the only one that is up.
Result<std::string> choose_network() {
  if (const std::string given = variable("WEFT_NETWORK"); !given.empty()) {
    return given;
  }
  const std::vector<std::string> names = launch::networks_that_are_up();
  if (names.size() == 1) {
    return names.front();
  }
  return fail(ErrorCode::invalid_argument,
              names.empty() ? "no network is up: `weft up` starts one"
                            : fmt::format("{} networks are up ({}): name one, or set WEFT_NETWORK",
                                          names.size(), fmt::join(names, ", ")));
}

// The host if the command line names none: that of WEFT_HOST, or for a launcher's process the host
// number rank modulo the number of hosts. weftd lists the NICs of a host one by one; the first of
// them stands for the host.
Result<std::string> choose_host(const std::string& directory) {
  if (const std::string given = variable("WEFT_HOST"); !given.empty()) {
    return given;
  }
  for (const char* name : kRankVariables) {
    const std::string text = variable(name);
    const char* const text_end = text.data() + text.size();
    std::size_t rank = 0;
    const auto [end, status] = std::from_chars(text.data(), text_end, rank);
    if (status != std::errc{} || end != text_end) {
      continue;
    }
    const auto reply = launch::ask_weftd(directory, {{"cmd", "status"}});
    if (!reply) {
      return tl::unexpected(reply.error());
    }
    // In the order of weftd, which all ranks are told: so each host gets its share of them.
    std::vector<std::string> hosts;
    for (const auto& nic : (*reply)["status"]["nics"]) {
      if (nic["nic"] == 0) {
        hosts.push_back(nic["host"].get<std::string>());
      }
    }
    if (hosts.empty()) {
      return fail(ErrorCode::not_found, "the network has no host with a NIC to run on");
    }
    return hosts[rank % hosts.size()];
  }
  return fail(ErrorCode::invalid_argument,
              fmt::format("on which host? Name one, or set WEFT_HOST; a launcher's processes are "
                          "told apart by {}",
                          fmt::join(kRankVariables, ", ")));
}

// A choice that the user has to make is a wrong command line; a weftd that fails is not.
int refuse(const Error& error) {
  complain("weft exec: {}\n", error.message);
  return error.code == ErrorCode::invalid_argument ? kUsage : kFailure;
}

// Becomes the program, with its environment; returns only if that fails, with the codes that a
// shell would give.
int exec(Options options) {
  sort_words(options);
  if (options.words.empty()) {
    complain("weft exec: give a command after `--`\n");
    return kUsage;
  }
  const auto name = options.name.empty() ? choose_network() : Result<std::string>(options.name);
  if (!name) {
    return refuse(name.error());
  }
  const std::string directory = unwrap(launch::named_directory(*name, false));
  const auto host =
      options.host.empty() ? choose_host(directory) : Result<std::string>(options.host);
  if (!host) {
    return refuse(host.error());
  }
  const launch::DeviceKind kind =
      unwrap(launch::device_of_network(directory, options.device, options.names));
  std::vector<std::string> words;
  for (const std::string& word : options.words) {
    words.push_back(unwrap(launch::fill_placeholders(directory, word, kind)));
  }
  // The environment is set in this process, which becomes the program.
  for (const auto& [key, value] : unwrap(launch::equip_host(directory, *host, kind))) {
    ::setenv(key.c_str(), value.c_str(), 1);
  }
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  launch::restore_write_signals();
  ::execvp(arguments[0], arguments.data());
  const int code = errno == ENOENT ? 127 : 126;
  complain("weft exec: {}\n", srd::errno_text("cannot run '" + words[0] + "'"));
  return code;
}

}  // namespace

void register_exec(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "exec");
  auto options = std::make_shared<Options>();
  options->name_option = command->add_option("name", options->name, "Name of the network");
  options->host_option = command->add_option("host", options->host, "Host: h1, h2, ...");
  command->add_option("--device", options->device,
                      launch::known_devices() + "; default: what `weft up` was told");
  command->add_option("--names", options->names, launch::kAboutNames);
  command->add_option("command", options->words, "After `--`: the command")->expected(-1);
  command->callback([&work, options] { work = [options] { return exec(*options); }; });
}

}  // namespace weft::cli
