// Owns the weftd program: command line in, Daemon out.
#include <signal.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "emu/attach/protocol.hpp"
#include "emu/daemon/daemon.hpp"
#include "emu/fabric/topology_yaml.hpp"
#include "emu/options/option_format.hpp"
#include "srd/wire/srd_header.hpp"

namespace {

constexpr int kUsage = 2;  // it was asked the wrong way
constexpr std::size_t kHeader = 64;
static_assert(weft::attach::kLeastPayload + kHeader >= weft::srd::wire::kLargestAck);

// Raises the limit of open descriptors: each attached process takes six or seven.
void take_all_descriptors() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
}

void add_address_options(CLI::App& app, weft::daemon::DaemonOptions& options) {
  app.add_flag_callback(
      "--routable",
      [&] {
        options.plant.prefix = {10, 77};
      },
      "Addresses 10.77.HOST.NIC, which kernels route, instead of loopback's 127.77.HOST.NIC");
  app.add_flag("--own-block", options.own_block,
               "Addresses 127.B.HOST.NIC, with a B that no other weftd of this network namespace "
               "has (docs/containers.md)")
      ->excludes("--routable")
      ->excludes("--port");
}

void add_container_options(CLI::App& app, weft::daemon::DaemonOptions& options) {
  app.add_flag("--share", options.share,
               "Make the folder DIR/share, which containers mount (docs/containers.md)");
  app.add_option("--allow-uid", options.other_users,
                 "A user who may attach, beside this one and root");
}

// The hosts of the network, and how they are called.
struct HostOptions {
  std::size_t count = 2;
  std::vector<std::string> names;
  std::uint32_t nics = 1;
  std::size_t first = 1;
  std::string topology;
};

void add_host_options(CLI::App& app, HostOptions& hosts) {
  auto* count = app.add_option("--hosts", hosts.count, "Number of hosts: h1, h2, ...")
                    ->check(CLI::Range(1, 254));
  auto* names = app.add_option("--host", hosts.names, "Name of a host, instead of --hosts; repeat")
                    ->allow_extra_args(false)
                    ->excludes(count);
  auto* nics = app.add_option("--nics", hosts.nics, "NICs of every host")->check(CLI::Range(1, 16));
  app.add_option("--topology", hosts.topology,
                 "File that describes the network, its hosts and their NICs (docs/experiments.md)")
      ->excludes(count)
      ->excludes(names)
      ->excludes(nics);
  app.add_option("--first-host", hosts.first,
                 "Number of the first host, where several weftds are joined")
      ->check(CLI::Range(1, 254));
}

std::vector<std::string> names_of(const HostOptions& hosts) {
  std::vector<std::string> names = hosts.names;
  for (std::size_t i = 0; hosts.names.empty() && i < hosts.count; ++i) {
    names.push_back("h" + std::to_string(hosts.first + i));
  }
  return names;
}

}  // namespace

int main(int argc, char** argv) {
  // A client may close its connection while weftd writes to it; a capture may become larger than
  // `ulimit -f`.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  take_all_descriptors();
  CLI::App app{"weftd: the network between emulated RDMA NICs on this machine"};
  app.formatter(std::make_shared<weft::options::OptionFormat>());
  weft::daemon::DaemonOptions options;
  std::size_t payload = 4096;
  bool no_direct = false;
  app.add_option("--dir", options.directory, "Directory for its sockets")->required();
  HostOptions hosts;
  add_host_options(app, hosts);
  app.add_option("--mtu", payload, "Payload bytes of a packet")
      ->check(CLI::Range(weft::attach::kLeastPayload, weft::attach::kMaxPayload));
  app.add_flag(
      "--no-direct", no_direct,
      "Carry every frame through weftd, also between two processes that could share a ring");
  app.add_option("--seed", options.seed, "Seed of everything that the network draws by lot");
  app.add_option("--dilation", options.dilation, "Seconds here per second in the network")
      ->check(CLI::Range(0.001, 1e6));
  app.add_option("--port", options.ports,
                 "A port to the outside: udp:LOCAL,REMOTE, dpdk:DEVARGS, tap:NAME or "
                 "dgram:LOCAL,REMOTE; with @HOST on that host's link (docs/weftd.md)")
      ->allow_extra_args(false);
  app.add_option("--join-key", options.join_key,
                 "File of the key that the other weftds of udp ports have, too; mode 0600");
  add_address_options(app, options);
  add_container_options(app, options);
  app.add_option("--events", options.event_log, "File for its event log, JSON lines");
  app.add_option("--metrics-port", options.metrics_port,
                 "Serve /metrics on this port of 127.0.0.1, too (always on metrics.sock)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (!hosts.topology.empty()) {
    auto network = weft::fabric::read_topology_file(hosts.topology);
    if (!network) {
      std::fprintf(stderr, "weftd: %s\n", network.error().message.c_str());
      return 1;
    }
    options.topology = std::move(*network);
  }
  options.direct_rings = !no_direct;
  options.mtu = payload + kHeader;
  options.plant.hosts = names_of(hosts);
  options.plant.nics_per_host = hosts.nics;
  options.plant.first_host = static_cast<std::uint32_t>(hosts.first);
  auto daemon = weft::daemon::Daemon::create(options);
  if (!daemon) {
    std::fprintf(stderr, "weftd: %s\n", daemon.error().message.c_str());
    return daemon.error().code == weft::ErrorCode::invalid_argument ? kUsage : 1;
  }
  if (auto ran = (*daemon)->run(); !ran) {
    std::fprintf(stderr, "weftd: %s\n", ran.error().message.c_str());
    return 1;
  }
  return 0;
}
