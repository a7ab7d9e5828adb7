// Owns `weft run`: a network, programs on its hosts, one table of what happened, and all of it
// gone.
//
// In this order: split the words after `--` into commands; give the run a directory; start a weftd
// of its own; apply faults; start the programs (a client only when its server listens); wait for
// them; ask weftd for its counters; judge. Whatever ends it, programs end first, then weftd, then
// the directory goes.
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/device_statistics.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/mpi_program.hpp"
#include "emu/cli/number_checks.hpp"
#include "emu/cli/programs.hpp"
#include "emu/cli/run/report.hpp"
#include "emu/cli/softroce/guests.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/cores.hpp"
#include "emu/launch/find_program.hpp"
#include "emu/launch/host_environment.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/program_group.hpp"
#include "emu/launch/run_directory.hpp"
#include "emu/launch/weftd_process.hpp"
#include "srd/base/joined.hpp"

namespace weft::cli {
namespace {

// How long a client is held back for its server to listen. Then it is started all the same: whether
// the server really listens is the client's matter.
constexpr std::chrono::milliseconds kServerPatience{5000};
constexpr std::chrono::milliseconds kGuestPatience{120'000};  // in a guest, which boots first
constexpr std::uint64_t kMaxCapture = std::uint64_t{256} << 20;

// The host of a program, by the position of its command: programs fill a host before the next one
// begins.
std::string host_name(std::size_t index, const RunOptions& options) {
  return "h" + std::to_string(index / options.per_host + 1);
}

// The name of a program: its host, with a number where several share one. Output is labelled with
// it, and --kill and --stop go by it.
std::string program_name(std::size_t index, const RunOptions& options) {
  return options.per_host > 1
             ? host_name(index, options) + "." + std::to_string(index % options.per_host)
             : host_name(index, options);
}

// A command that names another host, as in {h1.ip}, is taken for a client of what runs there.
bool mentions(const Words& words, const std::string& host) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return word.find("{" + host + ".") != std::string::npos;
  });
}

// Whether the network draws anything by lot. Otherwise it is the same with every seed, and the seed
// is not worth a line.
bool draws_by_lot(const RunOptions& options) {
  return !options.topology.empty() || !options.faults.empty();
}

// Each program in a machine of its own, instead of on emulated devices.
bool runs_in_guests(const RunOptions& options) { return options.device == kSoftroceDevice; }

// Of three processes that wait for each other on two cores one is always in the way, unless the one
// in the middle has a core of its own. Elsewhere only if the user asks.
bool is_pinned(const RunOptions& options, std::size_t programs) {
  return !runs_in_guests(options) &&
         (options.pin > 0 ||
          (options.pin == 0 && programs == 2 && launch::core_count() == 2 &&
           launch::passes_weftd(options.through_weftd, options.topology, options.faults)));
}

// Copies of an MPI program know nothing of each other: that is a launcher's doing.
void warn_of_mpi(const std::vector<Words>& commands, const RunOptions& options) {
  const bool copies = commands.size() > 1 &&
                      std::all_of(commands.begin(), commands.end(),
                                  [&](const Words& words) { return words == commands.front(); });
  if (copies && !options.quiet && wants_mpi(commands.front().front())) {
    complain(
        "weft run: '{0}' is an MPI program: without a launcher each copy is a world of size "
        "1. Use\n  weft up --hosts {1} && mpirun -n {1} weft exec -- {2}\n",
        commands.front().front(), commands.size(), joined(commands.front(), " "));
  }
}

// A shell or a debugger: it finds its terminal as it would without us.
bool has_terminal_alone(const std::vector<Words>& commands) {
  return commands.size() == 1 && ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0 &&
         ::isatty(STDERR_FILENO) != 0;
}

using Networks = std::map<std::string, launch::HostNetwork>;  // by host, if each has its own
using Ports = std::vector<std::string>;

// Why the options cannot be had with a guest for each program; "" if they can.
std::string unfit_for_guests(const RunOptions& options) {
  for (const auto& [given, name] : {std::pair{options.netns, "--netns"},
                                    {options.per_host > 1, "--per-host"},
                                    {options.nics > 1, "--nics"},
                                    {!options.names.empty(), "--names"},
                                    {!options.late_receives.empty(), "--late-receives"}}) {
    if (given) {
      return fmt::format(
          "--device softroce gives each program a machine and a NIC of its own, so "
          "{} has no meaning there",
          name);
    }
  }
  return "";
}

// A namespace and a tap for each host, before any program runs.
Networks make_networks(const std::string& directory, std::size_t hosts,
                       const launch::DeviceKind& kind) {
  Networks networks;
  for (std::size_t host = 1; host <= hosts; ++host) {
    const std::string name = "h" + std::to_string(host);
    const std::string address =
        unwrap(launch::fill_placeholders(directory, "{" + name + ".ip}", kind));
    networks.emplace(name, unwrap(launch::HostNetwork::create(directory, name, address)));
  }
  return networks;
}

// The mishaps that --kill and --stop ask for. One that no program would suffer is an error: it
// would be a typing mistake, and the run would test nothing.
Result<std::vector<Mishap>> mishaps_of(const RunOptions& options, std::size_t programs) {
  std::vector<Mishap> mishaps;
  const auto add = [&](const std::string& text, Result<Mishap> (*parse)(const std::string&)) {
    return parse(text).and_then([&](const Mishap& mishap) -> Result<void> {
      mishaps.push_back(mishap);
      for (std::size_t i = 0; i < programs; ++i) {
        if (mishap.befalls(program_name(i, options))) {
          return {};
        }
      }
      return fail(
          ErrorCode::invalid_argument,
          fmt::format("'{}': there is no '{}' among the {} programs", text, mishap.name, programs));
    });
  };
  for (const auto& [texts, parse] :
       {std::pair{&options.kills, &parse_kill}, {&options.stops, &parse_stop}}) {
    for (const std::string& text : *texts) {
      if (auto added = add(text, parse); !added) {
        return tl::unexpected(added.error());
      }
    }
  }
  return mishaps;
}

// Whether program `i` waits for an earlier one to listen. Of copies on one host at most one
// listens, and it may do so only when the others are there.
bool is_awaited(std::size_t earlier, std::size_t i, const std::vector<Words>& commands,
                const RunOptions& options) {
  const std::string host = host_name(earlier, options);
  const bool neighbours = host == host_name(i, options) && commands[earlier] == commands[i];
  return !neighbours && mentions(commands[i], host);
}

// What programs start in.
struct Scene {
  const std::vector<Words>& commands;
  const RunOptions& options;
  const std::string& directory;  // weftd's
  const launch::DeviceKind& kind;
  const Networks& networks;
  const Guests* guests;  // null: programs run on this machine
  const std::vector<Mishap>& mishaps;
  const std::optional<launch::RunDirectory>& run;
};

// What program `i` is started with: words, environment, labels, signals.
launch::Program program_of(std::size_t i, const Scene& scene) {
  const RunOptions& options = scene.options;
  const std::string host = host_name(i, options);
  launch::Program program;
  program.name = program_name(i, options);
  program.signals = signals_for(program.name, scene.mishaps);
  program.takes_terminal = scene.commands.size() == 1;
  program.label = options.no_prefix || has_terminal_alone(scene.commands) ? "" : program.name;
  program.network = options.netns ? &scene.networks.at(host) : nullptr;
  if (is_pinned(options, scene.commands.size())) {
    program.avoid_core = launch::core_count() - 1;
  }
  if (scene.guests == nullptr) {
    program.environment = unwrap(launch::equip_host(scene.directory, host, scene.kind));
  }
  // For programs that have no launcher: which of how many they are.
  program.environment.emplace_back("WEFT_RANK", std::to_string(i));
  program.environment.emplace_back("WEFT_SIZE", std::to_string(scene.commands.size()));
  if (!options.late_receives.empty()) {
    const auto late = unwrap(parse_time(options.late_receives));
    program.environment.emplace_back("WEFT_LATE_RECEIVES", std::to_string(late.count()));
  }
  const Words& command = scene.commands[i];
  for (const std::string& word :
       scene.guests == nullptr ? command : unwrap(scene.guests->around(command, host))) {
    program.words.push_back(unwrap(launch::fill_placeholders(scene.directory, word, scene.kind)));
  }
  return program;
}

// Starts the programs one after the other; a client waits for its servers to listen, but not for
// ever, and once for each: what looks like a server may be none. False: an interrupt came before
// the last one.
bool start_all(launch::ProgramGroup& group, const Scene& scene) {
  const auto patience = scene.guests == nullptr ? kServerPatience : kGuestPatience;
  const std::vector<Words>& commands = scene.commands;
  std::vector<bool> awaited(commands.size(), false);
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const launch::Program program = program_of(i, scene);
    for (std::size_t server = 0; server < i; ++server) {
      if (!awaited[server] && is_awaited(server, i, commands, scene.options)) {
        group.wait_until([&] { return group.is_serving(server); }, patience);
        awaited[server] = true;
      }
    }
    if (group.interrupt() != 0) {
      return false;
    }
    unwrap(group.start(program));
    if (scene.run) {
      scene.run->event("start", {{"host", host_name(i, scene.options)},
                                 {"command", joined(program.words, " ")}});
    }
  }
  return true;
}

// What is known when all programs have ended.
struct Outcome {
  std::vector<launch::ProgramEnd> ends;
  int interrupt = 0;    // that kept programs from starting
  int lost_output = 0;  // why, an errno
};

// Starts all programs and waits for their ends.
Outcome run_group(const Scene& scene) {
  Outcome outcome;
  launch::ProgramGroup group;
  launch::check_interrupt();  // from here on signals are for the programs
  const bool all = start_all(group, scene);
  outcome.ends = group.finish(
      std::chrono::milliseconds{static_cast<std::int64_t>(scene.options.grace_seconds * 1000)});
  outcome.interrupt = all ? 0 : group.interrupt();
  outcome.lost_output = group.output_failure();
  return outcome;
}

// Starts the capture before any program runs, so that it has all frames. While a capture goes on
// weftd makes no direct rings, whose frames it would not see.
Result<void> begin_capture(const std::string& directory,
                           const std::optional<launch::RunDirectory>& run) {
  if (!run) {
    return fail(ErrorCode::io_error, "--capture: there is no directory for it (--out)");
  }
  return launch::ask_weftd(directory, {{"cmd", "capture"},
                                       {"start", std::filesystem::absolute(run->path()).string() +
                                                     "/capture.pcapng"},
                                       {"snap_length", 262144},
                                       {"size_limit", kMaxCapture}})
      .map([](const nlohmann::json&) {});
}

// Ends the capture and says what it lacks. Such a capture is still worth reading, if the reader
// knows.
void end_capture(const std::string& directory) {
  const auto reply = launch::ask_weftd(directory, {{"cmd", "capture"}, {"stop", true}});
  const nlohmann::json capture = reply ? (*reply)["capture"] : nlohmann::json();
  if (capture.is_null()) {
    return;
  }
  const auto count = [&](const char* what) { return capture.value(what, std::uint64_t{0}); };
  if (const auto skipped = count("skipped"); skipped != 0) {
    complain(
        "weft run: the capture lacks {} frames: it is as large as it may be ({} MB), or the "
        "disk is full\n",
        skipped, kMaxCapture >> 20);
  }
  if (count("dropped") != 0 || !capture.value("complete", true)) {
    complain("weft run: the capture lacks {} frames, for which the disk was too slow\n",
             capture.value("complete", true) ? std::to_string(count("dropped")) : "its last");
  }
}

// Tells and writes down what happened, while the network is still there to be asked. Returns the
// exit code: of the programs that failed, that of the first one; else the interrupt's; else a
// failure if output or weftd was lost.
int conclude(const Outcome& outcome, const std::string& directory, const RunOptions& options,
             const std::optional<launch::RunDirectory>& run) {
  const auto counters = launch::ask_weftd(directory, {{"cmd", "counters"}});
  if (run) {
    for (const launch::ProgramEnd& end : outcome.ends) {
      nlohmann::ordered_json details{
          {"host", end.name}, {"exit_code", end.code}, {"seconds", end.seconds}};
      if (end.signal != 0) {
        details["signal"] = end.signal;
      }
      if (end.killed) {
        details["killed"] = true;
      }
      if (end.stopped) {
        details["stopped"] = true;
      }
      run->event("end", details);
    }
    const auto metrics = counters ? launch::ask_weftd(directory, {{"cmd", "metrics"}})
                                  : counters;  // one that is stuck is not waited for twice
    if (metrics) {
      run->write("metrics.prom", (*metrics)["metrics"].get<std::string>());
    }
  }
  if (options.capture && counters) {
    end_capture(directory);
  }
  report(outcome.ends, counters ? (*counters)["counters"] : nlohmann::json(), options);
  if (!options.quiet) {
    print_device_statistics(device_statistics(directory), options.json);
  }
  const int code = verdict(outcome.ends, options, run);
  if (outcome.lost_output != 0) {
    complain("weft run: output of the programs is lost: {}\n", std::strerror(outcome.lost_output));
  }
  // An interrupt, or a second one, ends the wait for the answer.
  if (!counters && launch::pending_interrupt() == 0) {
    complain("weft run: weftd did not answer: {}\n", counters.error().message);
  }
  return code != kSuccess                        ? code
         : outcome.interrupt != 0                ? 128 + outcome.interrupt
         : outcome.lost_output != 0 || !counters ? kFailure
                                                 : kSuccess;
}

// One command for each program. Nothing, after a complaint, if the words make no commands.
std::optional<std::vector<Words>> commands_of(const RunOptions& options) {
  auto split = split_commands(options.words, words_after_dashes());
  if (!split) {
    complain("weft run: {}\n", split.error().message);
    return std::nullopt;
  }
  std::vector<Words> commands = std::move(*split);
  if (commands.size() > 1 && options.copies > 1) {
    complain(
        "weft run: -n {} copies a single command, and these are {}: leave one of the two out\n",
        options.copies, commands.size());
    return std::nullopt;
  }
  if (commands.size() == 1) {
    commands.resize(options.copies, commands.front());
  }
  return commands;
}

// Why that many hosts cannot be had with these options; "" if they can.
std::string unfit(const RunOptions& options, std::size_t programs, std::size_t hosts) {
  const std::size_t most = options.netns ? launch::HostNetwork::kMax : kMaxHosts;
  if (hosts > most) {
    return fmt::format(
        "{} programs take {} hosts, and a network has at most {}{}; let --per-host programs share "
        "one",
        programs, hosts, most, options.netns ? " with a kernel of their own" : "");
  }
  return runs_in_guests(options) ? unfit_for_guests(options) : "";
}

// The order of the locals is the order of life: programs end before their networks, these before
// weftd, and weftd before its directory is gone.
int run_programs(const RunOptions& options) {
  const launch::Interruptible interruptible;
  const launch::DeviceKind kind = unwrap(
      launch::parse_device_kind(runs_in_guests(options) ? "rxe" : options.device, options.names));
  const auto commands = commands_of(options);
  if (!commands) {
    return kUsage;
  }
  const std::size_t hosts = (commands->size() + options.per_host - 1) / options.per_host;
  if (const std::string wrong = unfit(options, commands->size(), hosts); !wrong.empty()) {
    complain("weft run: {}\n", wrong);
    return kUsage;
  }
  const auto mishaps = mishaps_of(options, commands->size());
  if (!mishaps) {
    complain("weft run: {}\n", mishaps.error().message);
    return kUsage;
  }
  warn_of_mpi(*commands, options);
  std::optional<Guests> guests;
  if (runs_in_guests(options)) {
    guests.emplace(unwrap(Guests::prepare(hosts)));
  }
  const auto run = open_directory(options, *commands, hosts);
  if (draws_by_lot(options) && !options.quiet) {
    complain("weft run: seed {}\n", options.seed);
  }
  const launch::PrivateWeftd weftd =
      unwrap(launch::PrivateWeftd::start({.hosts = hosts,
                                          .nics = std::max(options.nics, launch::least_nics(kind)),
                                          .mtu = launch::payload_of(kind),
                                          .direct_rings = !options.through_weftd,
                                          .topology = options.topology,
                                          .seed = options.seed,
                                          .dilation = options.dilation,
                                          .routable = options.netns || guests.has_value(),
                                          .ports = guests ? guests->ports() : Ports{},
                                          .events = run ? run->path() + "/network.jsonl" : ""}));
  if (is_pinned(options, commands->size())) {
    launch::pin_to_core(weftd.pid(), launch::core_count() - 1);
  }
  // Before anything runs: a topology may have fewer hosts.
  (void)unwrap(
      launch::fill_placeholders(weftd.directory(), "{h" + std::to_string(hosts) + ".ip}", kind));
  Networks networks = options.netns ? make_networks(weftd.directory(), hosts, kind) : Networks{};
  for (const std::string& fault : options.faults) {
    unwrap(launch::apply_fault(weftd.directory(), fault));
  }
  if (options.capture) {
    unwrap(begin_capture(weftd.directory(), run));
  }
  if (guests) {
    unwrap(guests->meet(weftd.directory()));
  }
  const Outcome outcome = run_group({.commands = *commands,
                                     .options = options,
                                     .directory = weftd.directory(),
                                     .kind = kind,
                                     .networks = networks,
                                     .guests = guests ? &*guests : nullptr,
                                     .mishaps = *mishaps,
                                     .run = run});
  return conclude(outcome, weftd.directory(), options, run);
}

}  // namespace

void register_run(CLI::App& program, Work& work) {
  CLI::App* run = add_command(program, "run");
  auto options = std::make_shared<RunOptions>();
  run->add_option("-n,--copies", options->copies, "Copies of a single command")
      ->check(CLI::Range(1, 1024));
  run->add_option("--per-host", options->per_host, "Programs that share a host")
      ->check(CLI::Range(1, 255));
  auto* nics = run->add_option("--nics,--rails", options->nics, "NICs (rails) of every host")
                   ->check(CLI::Range(1, 16));
  run->add_option("--device", options->device,
                  launch::known_devices() +
                      "; of several with commas each host has one; softroce: each program runs in "
                      "a virtual machine with Linux's rdma_rxe")
      ->capture_default_str();
  run->add_option("--names", options->names, launch::kAboutNames);
  run->add_flag("--through-weftd", options->through_weftd,
                "Let every packet pass weftd instead of direct rings");
  run->add_flag("--netns", options->netns,
                "Give each host a network namespace of its own, with a tap into the fabric: for "
                "programs that want another interface than loopback");
  run->add_option("--topology", options->topology,
                  "File that describes the network, its hosts and their NICs")
      ->check(CLI::ExistingFile)
      ->excludes(nics);
  run->add_flag("--capture", options->capture,
                "Write what passes the network to capture.pcapng in --out, 256 MB at most");
  run->add_option("--fault", options->faults,
                  "Trouble from the start, as in scenario files: 'link: h1-*, loss: 0.01'")
      ->allow_extra_args(false);
  run->add_option(
         "--kill", options->kills,
         "Kill a host's programs so long after their start, as a host that lost its power: "
         "h2@200ms. How they end does not count")
      ->allow_extra_args(false);
  run->add_option("--stop", options->stops,
                  "Stop a host's programs for a while: h2@100ms+50ms, 50 ms long from 100 ms on")
      ->allow_extra_args(false);
  run->add_option(
         "--late-receives", options->late_receives,
         "How long a NIC overlooks receives that are posted, so that senders meet receivers "
         "that are not ready: 20ms")
      ->check([](const std::string& text) {
        const auto time = parse_time(text);
        return time ? std::string() : time.error().message;
      });
  run->add_flag("--pin,!--no-pin", options->pin,
                "A core for weftd alone, the others for the programs; done for two programs on two "
                "cores whose packets pass weftd, unless told not to");
  run->add_option("--seed", options->seed, "Seed of everything that the network draws by lot");
  run->add_option("--dilation", options->dilation, "Seconds here per second in the network")
      ->check(real_range(0.001, 1e6));
  run->add_option("--out", options->out,
                  "Directory for what is left of the run; default: one of its own, see below");
  run->add_flag("--no-prefix", options->no_prefix, "Pass output on as it is, without [h1]");
  run->add_flag("--json", options->json, "A JSON object per program, and one for the network");
  run->add_flag("-q,--quiet", options->quiet, "No table at the end");
  run->add_option("--grace", options->grace_seconds,
                  "Seconds that the others have when a program failed")
      ->check(real_range(0.0, 3600.0))
      ->capture_default_str();
  run->add_option("command", options->words, "After `--`: a command, or several with `:` between")
      ->expected(-1);
  run->callback([&work, options] { work = [options] { return run_programs(*options); }; });
}

}  // namespace weft::cli
