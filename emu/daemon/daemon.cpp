// Owns the construction of weftd, and its two threads.
//
// Daemon::create() makes everything that can fail, Daemon::run() the threads: forwarding runs in
// the calling thread, control in one of its own (docs/weftd.md, "Two planes"). Control ends by a
// signal or by the command `stop`; it then ends forwarding. The sockets are the last to be opened,
// so a client that can connect finds a weftd that is ready.
#include "emu/daemon/daemon.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "emu/daemon/address_block.hpp"
#include "emu/daemon/attach_server.hpp"
#include "emu/daemon/event_log.hpp"
#include "emu/daemon/forwarder.hpp"
#include "emu/daemon/metrics.hpp"
#include "emu/daemon/network_control.hpp"
#include "emu/daemon/shared_folder.hpp"
#include "emu/daemon/side_threads.hpp"
#include "emu/daemon/stream_server.hpp"
#include "emu/daemon/watch.hpp"
#include "srd/net/envelope.hpp"
#include "srd/run/clock.hpp"

namespace weft::daemon {
namespace {

// Notices handled in one go, before other work of the control thread has its turn.
constexpr int kNoticesATurn = 64;
constexpr Duration kIdleMetrics = std::chrono::seconds{30};

// Hosts and NICs in the order of the network's ports; addresses as asked for.
Plant::Options plant_of(const fabric::Topology& topology, const Plant::Options& asked) {
  Plant::Options options;
  options.hosts.clear();
  options.prefix = asked.prefix;
  options.first_host = asked.first_host;
  fabric::NodeId previous = fabric::kNone;
  for (const fabric::LinkId uplink : topology.ports()) {
    const fabric::NodeId host = topology.links()[uplink].from;
    if (host != previous) {
      options.hosts.push_back(topology.nodes()[host].name);
      options.nics_of_host.push_back(0);
      previous = host;
    }
    ++options.nics_of_host.back();
  }
  return options;
}

// Makes the directory if need be. The lock lasts as long as the descriptor, so it ends with weftd
// however that ends.
Result<srd::UniqueFd> lock_directory(const std::string& directory) {
  ::mkdir(directory.c_str(), S_IRWXU);
  struct stat info {};
  if (::stat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return fail(ErrorCode::io_error, srd::errno_text("directory '" + directory + "'"));
  }
  const std::string path = directory + "/lock";
  srd::UniqueFd lock(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!lock) {
    return fail(ErrorCode::io_error, srd::errno_text("file '" + path + "'"));
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(ErrorCode::already_exists, "another weftd runs in directory '" + directory + "'");
  }
  return lock;
}

// Listens on the loopback address, where any user of the machine may connect.
Result<srd::UniqueFd> listen_tcp(std::uint16_t port) {
  srd::UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0) {
    return fail(ErrorCode::io_error,
                srd::errno_text("metrics on 127.0.0.1:" + std::to_string(port)));
  }
  return listener;
}

// Blocks SIGINT and SIGTERM in this thread, and so in all that it makes later, and returns a
// descriptor that becomes readable instead.
Result<srd::UniqueFd> take_signals() {
  sigset_t mask;
  ::sigemptyset(&mask);
  ::sigaddset(&mask, SIGINT);
  ::sigaddset(&mask, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &mask, nullptr);
  srd::UniqueFd signals(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) {
    return fail(ErrorCode::out_of_resources, srd::errno_text("weftd: signals"));
  }
  return signals;
}

// Takes one line off the front of `input`. Nothing: it has no end yet.
std::optional<std::string> answer_line(const ControlView& view, std::string& input) {
  const std::size_t end = input.find('\n');
  if (end == std::string::npos) {
    return std::nullopt;
  }
  std::string answer = answer_control(view, input.substr(0, end));
  input.erase(0, end + 1);
  return answer;
}

StreamServer::Options control_options(const ControlView& view) {
  return {.answer = [&view](std::string& input, bool&) { return answer_line(view, input); },
          .refusal =
              [](std::string_view why) {
                return "{\"error\":\"" + std::string(why) + "\",\"ok\":false,\"v\":1}\n";
              }};
}

StreamServer::Options metrics_options(const ControlView& view) {
  return {.answer = [&view](std::string& input,
                            bool& close) { return answer_http(view, input, close); },
          .refusal =
              [](std::string_view why) {
                return "HTTP/1.1 503 Service Unavailable\r\nContent-Length: " +
                       std::to_string(why.size() + 1) + "\r\nConnection: close\r\n\r\n" +
                       std::string(why) + "\n";
              },
          .idle = kIdleMetrics};
}

}  // namespace

// Destroyed from the last member to the first: the servers go before the network that they ask, and
// that before the forwarder.
struct Daemon::Planes {
  Planes(const DaemonOptions& asked, Plant made, std::optional<AddressBlock> own);

  [[nodiscard]] Result<void> open();
  [[nodiscard]] Result<void> open_ports();
  [[nodiscard]] Result<void> listen();
  void run_control();
  void watch_signals();
  void watch_notices();
  void heed_notices();

  [[nodiscard]] std::size_t max_frame() const { return srd::net::max_frame_for(options.mtu); }

  DaemonOptions options;
  TimePoint started = srd::monotonic_now();
  srd::UniqueFd lock;  // flock() on the directory's lock file: one weftd per directory
  std::optional<AddressBlock> block;
  Plant plant;
  Forwarder forwarder;

  // --- The control thread's.
  boost::asio::io_context io{1};
  SideThreads side{io};
  EventLog events;
  NetworkControl network;
  ControlView view;
  std::unique_ptr<Watch> signals;
  std::unique_ptr<Watch> notices;
  std::unique_ptr<AttachServer> attach;
  StreamServer control;
  StreamServer metrics;
  StreamServer public_metrics;
};

Daemon::Planes::Planes(const DaemonOptions& asked, Plant made, std::optional<AddressBlock> own)
    : options(asked),
      block(std::move(own)),
      plant(std::move(made)),
      forwarder(plant, max_frame()),
      network(forwarder, events,
              {.seed = options.seed, .dilation = options.dilation, .max_frame = max_frame()}),
      view{.network = network,
           .directory = options.directory,
           .mtu = options.mtu,
           .seed = options.seed,
           .started = started,
           .direct_pairs = [this] { return attach->direct_pairs(); },
           .refused = [this] { return attach->refused(); },
           // Posted, not called: the handler that is running has still to send the answer.
           .stop = [this] { boost::asio::post(io, [this] { io.stop(); }); }},
      control(io, side, control_options(view)),
      metrics(io, side, metrics_options(view)),
      public_metrics(io, side, metrics_options(view)) {}

// The parts that can fail, in the order in which each needs the one before.
Result<void> Daemon::Planes::open() {
  auto locked = lock_directory(options.directory);
  if (!locked) {
    return tl::unexpected(locked.error());
  }
  lock = std::move(*locked);
  if (block) {
    block->remember(options.directory);
  }
  if (auto opened = forwarder.open(); !opened) {
    return opened;
  }
  if (auto opened = events.open(options.event_log, started); !opened) {
    return opened;
  }
  events.note("weftd", {{"pid", ::getpid()},
                        {"seed", options.seed},
                        {"hosts", plant.hosts().size()},
                        {"network", options.topology ? options.topology->name : "ideal"}});
  attach = std::make_unique<AttachServer>(
      io, side, plant, network, events,
      AttachServer::Options{.mtu = options.mtu,
                            .ring_bytes = options.ring_bytes,
                            .direct_rings = options.direct_rings,
                            .tells_network = options.topology.has_value(),
                            .started = started,
                            .other_users = options.other_users});
  network.set_on_modelled([this] { attach->take_all_rings_back(); });
  if (options.topology) {
    network.start_fabric(*options.topology);
  }
  // Before anything makes threads: they inherit the blocked signals.
  auto taken = take_signals();
  if (!taken) {
    return tl::unexpected(taken.error());
  }
  signals = std::make_unique<Watch>(io, std::move(*taken));
  if (auto started_side = side.start(); !started_side) {
    return started_side;
  }
  srd::UniqueFd bell(::fcntl(forwarder.notices().wait_fd(), F_DUPFD_CLOEXEC, 0));
  if (!bell) {
    return fail(ErrorCode::out_of_resources, srd::errno_text("weftd: a descriptor"));
  }
  notices = std::make_unique<Watch>(io, std::move(bell));
  return open_ports();
}

Result<void> Daemon::Planes::open_ports() {
  for (const std::string& text : options.ports) {
    const auto spec = parse_outside(text);
    if (!spec) {
      return tl::unexpected(spec.error());
    }
    const PlantNic* nic = nullptr;
    if (!spec->host.empty()) {
      const auto nics = plant.nics_of(spec->host);
      if (!nics) {
        return tl::unexpected(nics.error());
      }
      nic = nics->front();
    }
    auto io_port = open_outside(*spec, max_frame(), options.join_key);
    if (!io_port) {
      return tl::unexpected(io_port.error());
    }
    if (auto added = network.add_port(text, std::move(*io_port), nic); !added) {
      return tl::unexpected(added.error());
    }
  }
  return {};
}

// Last of all, and the attach socket last of these: a client that can connect finds everything
// ready.
Result<void> Daemon::Planes::listen() {
  if (auto remembered = attach->remember(options.directory + "/places"); !remembered) {
    return remembered;
  }
  auto control_socket = attach::listen_unix(options.directory + "/control.sock", SOCK_STREAM);
  if (!control_socket) {
    return tl::unexpected(control_socket.error());
  }
  auto metrics_socket = attach::listen_unix(options.directory + "/metrics.sock", SOCK_STREAM);
  if (!metrics_socket) {
    return tl::unexpected(metrics_socket.error());
  }
  if (options.metrics_port != 0) {
    auto port = listen_tcp(options.metrics_port);
    if (!port) {
      return tl::unexpected(port.error());
    }
    public_metrics.listen(std::move(*port), true);
  }
  auto attach_socket = attach::listen_unix(options.directory + "/attach.sock", SOCK_SEQPACKET);
  if (!attach_socket) {
    return tl::unexpected(attach_socket.error());
  }
  if (!options.other_users.empty()) {
    if (auto opened = open_socket_to_all(options.directory); !opened) {
      return opened;
    }
  }
  if (options.share) {
    if (const auto shared = share_socket(options.directory); !shared) {  // only containers miss it
      std::fprintf(stderr, "weftd: no folder for containers: %s\n", shared.error().message.c_str());
    }
  }
  control.listen(std::move(*control_socket), false);
  metrics.listen(std::move(*metrics_socket), false);
  attach->listen(std::move(*attach_socket));
  watch_signals();
  watch_notices();
  return {};
}

void Daemon::Planes::watch_signals() {
  signals->when_readable([this] { io.stop(); });
}

void Daemon::Planes::watch_notices() {
  notices->when_readable([this] {
    forwarder.notices().clear_bell();
    heed_notices();
  });
}

// Waits for the notices' eventfd again only when the queue is empty: it is signalled once until it
// is cleared.
void Daemon::Planes::heed_notices() {
  Notice notice;
  for (int i = 0; i < kNoticesATurn; ++i) {
    if (!forwarder.notices().pop(notice)) {
      watch_notices();
      return;
    }
    attach->heed(notice);
  }
  boost::asio::post(io, [this] { heed_notices(); });
}

void Daemon::Planes::run_control() {
  io.run();
  events.note("stop", nlohmann::json::object());
  forwarder.end();
}

Daemon::Daemon(std::unique_ptr<Planes> planes) : planes_(std::move(planes)) {}

Daemon::~Daemon() = default;

Result<std::unique_ptr<Daemon>> Daemon::create(const DaemonOptions& options) {
  if (auto good = Admission::check(options.other_users); !good) {
    return tl::unexpected(good.error());
  }
  Plant::Options asked = options.plant;
  std::optional<AddressBlock> block;
  if (options.own_block) {
    auto taken = AddressBlock::take(options.directory);
    if (!taken) {
      return tl::unexpected(taken.error());
    }
    asked.prefix = taken->prefix();
    block = std::move(*taken);
  }
  auto plant = Plant::make(options.topology ? plant_of(*options.topology, asked) : asked);
  if (!plant) {
    return tl::unexpected(plant.error());
  }
  try {
    auto planes = std::make_unique<Planes>(options, std::move(*plant), std::move(block));
    if (auto opened = planes->open(); !opened) {
      return tl::unexpected(opened.error());
    }
    if (auto listening = planes->listen(); !listening) {
      return tl::unexpected(listening.error());
    }
    return std::unique_ptr<Daemon>(new Daemon(std::move(planes)));
  } catch (const std::runtime_error& error) {  // Boost.Asio's, when there is no descriptor left
    return fail(ErrorCode::out_of_resources, std::string("weftd: ") + error.what());
  }
}

Result<void> Daemon::run() {
  // From here on calls of the control thread wait to be served, so forwarder.run() must follow.
  planes_->forwarder.calls().begin();
  std::thread control;
  try {
    control = std::thread([this] { planes_->run_control(); });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::out_of_resources, std::string("weftd: a thread: ") + error.what());
  }
  planes_->forwarder.run();
  control.join();
  return {};
}

const ControlView& Daemon::control() const { return planes_->view; }

}  // namespace weft::daemon
