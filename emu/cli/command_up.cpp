// Owns `weft up`, `down` and `status`: networks that stay, by name.
//
// `up` claims the network's directory, starts weftd in it as a process of its own, and returns when
// weftd serves. `down` asks that weftd to stop and removes the directory.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/number_checks.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/labs/lab_record.hpp"
#include "emu/launch/cdi.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/host_environment.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/network_claim.hpp"
#include "emu/launch/weftd_process.hpp"
#include "srd/io/join_key.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

struct Options {
  std::string new_join_key;
  std::string name = "default";
  std::string device = launch::default_device();
  std::string names;
  launch::WeftdOptions weftd;
  bool cdi = false;
  bool as_json = false;
};

// Writes the CDI files of the network, by which container engines find its devices.
Result<void> give_to_containers(const std::string& directory, const Options& options) {
  const auto written = launch::write_cdi(directory, options.name, {options.device},
                                         launch::kCdiFolder, options.names);
  return written ? Result<void>{} : tl::unexpected(written.error());
}

// Checks that --names has a name for each NIC. Only weftd knows how many NICs each host has, as a
// topology may say so.
Result<void> check_names(const std::string& directory, const launch::DeviceKind& kind) {
  const auto reply = launch::ask_weftd(directory, {{"cmd", "status"}});
  if (!reply) {
    return tl::unexpected(reply.error());
  }
  for (const json& nic : (*reply)["status"]["nics"]) {
    if (const auto name = kind->device_name(nic["nic"].get<std::size_t>()); !name) {
      return fail(name.error().code,
                  "host " + nic["host"].get<std::string>() + ": " + name.error().message);
    }
  }
  return {};
}

// What programs and containers will ask of a network that has just started.
Result<void> make_usable(const std::string& directory, const launch::DeviceKind& kind,
                         const Options& options) {
  if (!options.names.empty() && kind) {
    if (auto named = check_names(directory, kind); !named) {
      return named;
    }
  }
  return options.cdi ? give_to_containers(directory, options) : Result<void>{};
}

// The claim keeps two commands from starting or ending the same network at once; it is released
// when the command ends, and removes a directory that was made for nothing.
int up(Options options) {
  if (!options.new_join_key.empty()) {
    unwrap(srd::create_join_key(options.new_join_key));
    fmt::print(
        "'{0}' holds a new key: copy it to the other machine, and give both networks "
        "--join-key {0}\n",
        options.new_join_key);
    return kSuccess;
  }
  const launch::DeviceKind kind = unwrap(launch::parse_device_kind(options.device, options.names));
  const launch::Interruptible interruptible;
  launch::NetworkClaim claim = unwrap(launch::NetworkClaim::take(options.name, true));
  const std::string& directory = claim.directory();
  if (labs::is_lab(directory)) {
    complain("weft up: '{0}' is a lab: `weft lab down {0}` ends it\n", options.name);
    return kFailure;
  }
  // A small question: the status of a large network is long.
  const auto alive = launch::ask_weftd(directory, {{"cmd", "counters"}});
  if (!alive && alive.error().code == ErrorCode::invalid_argument) {  // no network can be there
    complain("weft up: {}; set XDG_RUNTIME_DIR to a shorter one\n", alive.error().message);
    return kFailure;
  }
  if (alive || alive.error().code != ErrorCode::not_found) {
    complain("weft up: '{0}' is up already{1}; `weft down {0}` ends it\n", options.name,
             alive ? "" : " (" + alive.error().message + ")");
    return kFailure;
  }
  // What a weftd that was killed has left: counters and files of devices that are no more.
  std::error_code error;
  std::filesystem::remove_all(directory + "/" + launch::kDevicesFolder, error);
  launch::remove_cdi(directory);
  options.weftd.share = true;
  options.weftd.nics = std::max(options.weftd.nics, launch::least_nics(kind));
  // Frames of the network hold the largest packet of this kind of device.
  options.weftd.mtu = launch::payload_of(kind);
  // Before weftd answers: whoever finds the network up also finds what its devices are.
  unwrap(launch::note_device(directory, options.device, options.names));
  const pid_t pid = unwrap(launch::start_weftd(directory, options.weftd, false));
  auto usable = make_usable(directory, kind, options);
  // A network that cannot be used as asked does not stay.
  if (!usable) {
    (void)launch::stop_weftd(directory);
  }
  unwrap(std::move(usable));
  claim.keep();
  const std::string hosts = options.weftd.topology.empty()
                                ? fmt::format("hosts h{} to h{}", options.weftd.first_host,
                                              options.weftd.first_host + options.weftd.hosts - 1)
                                : options.weftd.topology;
  fmt::print("'{0}' is up: weftd {1}, {2}, seed {3}\nweft exec {0} h{4} -- COMMAND\n", options.name,
             pid, hosts, options.weftd.seed, options.weftd.first_host);
  return kSuccess;
}

// Success means that weftd is gone, and its directory with it. A directory without a weftd is
// cleared away, too.
int down(const Options& options) {
  const launch::NetworkClaim claim = unwrap(launch::NetworkClaim::take(options.name, false));
  const std::string& directory = claim.directory();
  if (labs::is_lab(directory)) {
    complain("weft down: '{0}' is a lab: `weft lab down {0}` ends it with its containers\n",
             options.name);
    return kFailure;
  }
  const auto stopped = launch::stop_weftd(directory);
  if (!stopped) {
    complain("weft down: weftd of '{}' {}\n", options.name, stopped.error().message);
    return kFailure;
  }
  // First, as the list of these files lies in the directory.
  launch::remove_cdi(directory);
  std::error_code error;
  std::filesystem::remove_all(directory, error);
  if (!*stopped) {
    complain("weft down: '{}' was not running; its directory is gone now\n", options.name);
  }
  return kSuccess;
}

// weftd counts a process's frames from its own side: what came in at weftd went out of the process.
void print_table(const json& status) {
  fmt::print("weftd {}  network {}  up {:.0f} s  direct rings {}\n", status["pid"].get<int>(),
             status["network"].get<std::string>(), status["uptime_s"].get<double>(),
             status["direct_pairs"].get<int>());
  fmt::print("{:<8}{:>4}  {:<16}{:>9}{:>9}{:>14}{:>14}\n", "host", "nic", "address", "process",
             "qpns", "frames out", "frames in");
  for (const json& nic : status["nics"]) {
    fmt::print("{:<8}{:>4}  {:<16}\n", nic["host"].get<std::string>(), nic["nic"].get<int>(),
               nic["address"].get<std::string>());
    for (const json& process : nic["processes"]) {
      fmt::print("{:<30}{:>9}{:>9}{:>14}{:>14}\n", "", process["pid"].get<int>(),
                 process["first_qpn"].get<int>(), process["frames_in"].get<std::uint64_t>(),
                 process["frames_out"].get<std::uint64_t>());
    }
  }
  const json& counters = status["counters"];
  fmt::print("forwarded: {} frames, {} bytes\n", counters["frames"].get<std::uint64_t>(),
             counters["bytes"].get<std::uint64_t>());
  for (const auto& [reason, count] : counters["dropped"].items()) {
    if (count.get<std::uint64_t>() != 0) {
      fmt::print("dropped, {}: {}\n", reason, count.get<std::uint64_t>());
    }
  }
}

int status(const Options& options) {
  const std::string directory = unwrap(launch::named_directory(options.name, false));
  const json reply = unwrap(launch::ask_weftd(directory, {{"cmd", "status"}}));
  if (options.as_json) {
    fmt::print("{}\n", reply["status"].dump());
  } else {
    print_table(reply["status"]);
  }
  return kSuccess;
}

void add_name(CLI::App& command, Options& options) {
  command.add_option("name", options.name, "Name of the network")->capture_default_str();
}

}  // namespace

void register_up(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "up");
  auto options = std::make_shared<Options>();
  add_name(*command, *options);
  auto* hosts = command->add_option("--hosts", options->weftd.hosts, "Number of hosts: h1, h2, ...")
                    ->check(CLI::Range(1, 254))
                    ->capture_default_str();
  auto* nics = command->add_option("--nics", options->weftd.nics, "NICs of every host")
                   ->check(CLI::Range(1, 16));
  command
      ->add_option("--device", options->device,
                   launch::known_devices() + "; of several with commas each host has one")
      ->capture_default_str();
  command->add_option("--names", options->names, launch::kAboutNames);
  command
      ->add_option("--first-host", options->weftd.first_host,
                   "Number of the first host, where several networks are joined")
      ->check(CLI::Range(1, 254));
  command
      ->add_option("--port", options->weftd.ports,
                   "A port to the outside: udp:LOCAL,REMOTE, dpdk:DEVARGS, tap:NAME or "
                   "dgram:LOCAL,REMOTE; with @HOST it hangs on that host's link")
      ->allow_extra_args(false);
  auto* key = command->add_option("--join-key", options->weftd.join_key,
                                  "File of the key that udp ports need: the same key, of mode "
                                  "0600, on both machines");
  command
      ->add_option("--new-join-key", options->new_join_key,
                   "Make a key for --join-key in this file, and nothing else")
      ->excludes(key);
  command
      ->add_option("--topology", options->weftd.topology,
                   "File that describes the network, its hosts and their NICs")
      ->check(CLI::ExistingFile)
      ->excludes(hosts)
      ->excludes(nics);
  command->add_option("--seed", options->weftd.seed,
                      "Seed of everything that the network draws by lot");
  command
      ->add_option("--dilation", options->weftd.dilation, "Seconds here per second in the network")
      ->check(real_range(0.001, 1e6));
  command
      ->add_option("--allow-uid", options->weftd.other_users,
                   "Users who may attach, beside this one and root: those of containers")
      // All ones is no user: the kernel takes it for "leave it as it is".
      ->check(CLI::Range(uid_t{0}, std::numeric_limits<uid_t>::max() - 1));
  command->add_flag("--routable", options->weftd.routable,
                    "Addresses that kernels outside can reach, 10.77.HOST.NIC (`weft softroce`)");
  command->add_flag("--cdi", options->cdi,
                    std::string("Write files for container engines to ") + launch::kCdiFolder +
                        ", until `weft down` (`weft cdi --help`)");
  command->add_option("--events", options->weftd.events, "File for the event log, JSON lines");
  command->add_option("--metrics-port", options->weftd.metrics_port,
                      "Serve http://127.0.0.1:PORT/metrics, too");
  command->callback([&work, options] { work = [options] { return up(*options); }; });
}

void register_down(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "down");
  auto options = std::make_shared<Options>();
  add_name(*command, *options);
  command->callback([&work, options] { work = [options] { return down(*options); }; });
}

void register_status(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "status");
  auto options = std::make_shared<Options>();
  add_name(*command, *options);
  command->add_flag("--json", options->as_json, "One JSON object");
  command->callback([&work, options] { work = [options] { return status(*options); }; });
}

}  // namespace weft::cli
