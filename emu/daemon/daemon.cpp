// Owns weftd's loop and sockets.
#include "emu/daemon/daemon.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <nlohmann/json.hpp>

#include "srd/run/clock.hpp"
#include "srd/wire/envelope.hpp"

namespace weft::emu {
namespace {

// How long news on a socket may wait while frames are moving.
constexpr Duration kSocketInterval = std::chrono::microseconds{500};
// A frame that comes out so soon is not worth a yield.
constexpr Duration kSoon = std::chrono::microseconds{1};
// While a frame waits for room in somebody's ring, nobody rings when there is room again.
constexpr Duration kWaitingSleep = std::chrono::microseconds{50};

// Where a port to the outside rings no bell it is looked at that often, the less the quieter it is.
constexpr Duration kShortestBlindSleep = std::chrono::microseconds{50};
constexpr Duration kLongestBlindSleep = std::chrono::milliseconds{2};

// False: it is no socket, so its error stays.
bool clear_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0;
}

// Hosts and NICs in the order of the network's ports; addresses as asked for.
Plant::Options plant_of(const Topology& topology, const Plant::Options& asked) {
  Plant::Options options;
  options.hosts.clear();
  options.prefix = asked.prefix;
  options.first_host = asked.first_host;
  NodeId previous = kNone;
  for (const LinkId uplink : topology.ports()) {
    const NodeId host = topology.links()[uplink].from;
    if (host != previous) {
      options.hosts.push_back(topology.nodes()[host].name);
      options.nics_of_host.push_back(0);
      previous = host;
    }
    ++options.nics_of_host.back();
  }
  return options;
}

}  // namespace

Daemon::Daemon(const DaemonOptions& options, Plant plant)
    : options_(options),
      plant_(std::move(plant)),
      switchboard_(plant_, [this](Slot& from, Slot& to) { consider_direct(from, to); }),
      outside_(srd::wire::kEnvelopeSizeV6 + options.mtu),
      started_(srd::monotonic_now()) {}

Result<std::unique_ptr<Daemon>> Daemon::create(const DaemonOptions& options) {
  auto plant =
      Plant::make(options.topology ? plant_of(*options.topology, options.plant) : options.plant);
  if (!plant) {
    return tl::unexpected(plant.error());
  }
  std::unique_ptr<Daemon> daemon(new Daemon(options, std::move(*plant)));
  if (auto opened = daemon->open_sockets(); !opened) {
    return tl::unexpected(opened.error());
  }
  if (auto opened = daemon->events_.open(options.event_log, daemon->started_); !opened) {
    return tl::unexpected(opened.error());
  }
  daemon->events_.note("weftd", {{"pid", ::getpid()},
                                 {"seed", options.seed},
                                 {"hosts", daemon->plant_.hosts().size()},
                                 {"network", options.topology ? options.topology->name : "ideal"}});
  if (options.topology) {
    daemon->start_fabric(*options.topology);
  }
  if (auto opened = daemon->open_ports(); !opened) {
    return tl::unexpected(opened.error());
  }
  return daemon;
}

// After signals are blocked: a driver's threads inherit that.
Result<void> Daemon::open_ports() {
  for (const std::string& text : options_.ports) {
    const auto spec = parse_outside(text);
    if (!spec) {
      return tl::unexpected(spec.error());
    }
    const Nic* nic = nullptr;
    if (!spec->host.empty()) {
      const auto nics = plant_.nics_of(spec->host);
      if (!nics) {
        return tl::unexpected(nics.error());
      }
      nic = nics->front();
    }
    auto io = open_outside(*spec, srd::wire::kEnvelopeSizeV6 + options_.mtu);
    if (!io) {
      return tl::unexpected(io.error());
    }
    if (auto added = add_port(text, std::move(*io), nic); !added) {
      return added;
    }
  }
  return {};
}

Result<void> Daemon::add_port(const std::string& name, std::unique_ptr<srd::FrameIo> io,
                              const Nic* nic) {
  const int fd = io->wait_fd();
  if (auto added = outside_.add(name, std::move(io), nic); !added) {
    return added;
  }
  switchboard_.set_outside(&outside_);
  if (fd >= 0 && !watch(fd, Source::outside)) {
    return fail(ErrorCode::out_of_resources, srd::errno_text("weftd: port '" + name + "'"));
  }
  return {};
}

Result<void> Daemon::lock_directory() {
  const std::string path = options_.directory + "/lock";
  lock_ = srd::UniqueFd(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!lock_) {
    return fail(ErrorCode::io_error, srd::errno_text("file '" + path + "'"));
  }
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(ErrorCode::already_exists,
                "another weftd runs in directory '" + options_.directory + "'");
  }
  return {};
}

Result<void> Daemon::open_sockets() {
  ::mkdir(options_.directory.c_str(), S_IRWXU);
  struct stat info {};
  if (::stat(options_.directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return fail(ErrorCode::io_error, srd::errno_text("directory '" + options_.directory + "'"));
  }
  if (auto locked = lock_directory(); !locked) {
    return locked;
  }
  auto control = listen_unix(options_.directory + "/control.sock", SOCK_STREAM);
  if (!control) {
    return tl::unexpected(control.error());
  }
  epoll_ = srd::UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (auto metrics = open_metrics(); !metrics) {
    return metrics;
  }
  if (auto remembered = plant_.remember(options_.directory + "/places"); !remembered) {
    return remembered;
  }
  // Last of all: who can attach finds everything there.
  auto attach = listen_unix(options_.directory + "/attach.sock", SOCK_SEQPACKET);
  if (!attach) {
    return tl::unexpected(attach.error());
  }
  auto doorbell = srd::create_doorbell();
  if (!doorbell) {
    return tl::unexpected(doorbell.error());
  }
  sigset_t mask;
  ::sigemptyset(&mask);
  ::sigaddset(&mask, SIGINT);
  ::sigaddset(&mask, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &mask, nullptr);
  signals_ = srd::UniqueFd(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  attach_socket_ = std::move(*attach);
  control_socket_ = std::move(*control);
  doorbell_ = std::move(*doorbell);
  spare_ = srd::UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!signals_ || !epoll_ || !spare_ || !watch(attach_socket_.get(), Source::attach) ||
      !watch(control_socket_.get(), Source::control) ||
      !watch(doorbell_.get(), Source::doorbell, nullptr, true) ||
      !watch(signals_.get(), Source::signal)) {
    return fail(ErrorCode::out_of_resources, srd::errno_text("weftd: its event loop"));
  }
  return {};
}

bool Daemon::watch(int fd, Source source, Slot* slot, bool edge) {
  epoll_event event{};
  event.events = edge ? EPOLLIN | EPOLLET : EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return false;
  }
  watched_[fd] = {source, slot};
  return true;
}

void Daemon::unwatch(int fd) {
  if (watched_.erase(fd) != 0) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }
}

Result<void> Daemon::run() {
  // Whoever waits for what was just delivered may have to share our core: no spinning at all,
  // unless a frame inside of the network is about to come out.
  srd::Idler idler({.spin = Duration{0}});
  TimePoint next_sockets{};
  while (!stop_) {
    const TimePoint now = srd::monotonic_now();
    const std::size_t work = forward(now);
    if (now >= next_sockets) {
      serve_sockets(0);
      next_sockets = now + kSocketInterval;
    }
    end_idle(now);
    detach_doomed();
    if (work != 0) {
      idler.worked();
    } else if (fabric_ != nullptr && fabric_->next_event() < now + kSoon) {
      __builtin_ia32_pause();
    } else if (idler.pause(now)) {
      if (fall_asleep()) {
        serve_sockets(time_to_sleep(now));
        wake_up();
      }
      if (fabric_ != nullptr || !outside_.blind()) {
        idler.worked();  // else it was only a look: back to sleep at once
      }
      detach_doomed();
    }
  }
  events_.note("stop", nlohmann::json::object());
  return {};
}

std::size_t Daemon::forward(TimePoint now) {
  std::size_t work = 0;
  switchboard_.begin_round();
  for (Slot* slot : plant_.slots()) {
    work += switchboard_.pump(now, *slot);
    if (slot->doomed) {
      doomed_.push_back(slot);
    }
  }
  for (std::size_t port = 0; port < outside_.size(); ++port) {
    work += switchboard_.pump_outside(now, port);
  }
  if (fabric_ != nullptr) {
    work += fabric_->advance(now);
    if (fabric_->fabric().outages() != outages_) [[unlikely]] {
      watch_links();
    }
  }
  if (work != 0) {
    blind_sleep_ = {};
  }
  switchboard_.notify();
  return work;
}

std::int64_t Daemon::time_to_sleep(TimePoint now) {
  TimePoint wake = std::min(switchboard_.waiting() ? now + kWaitingSleep : kNever, next_end_idle_);
  if (fabric_ != nullptr) {
    wake = std::min(wake, fabric_->next_event());
  }
  if (outside_.blind()) {
    blind_sleep_ = std::clamp(2 * blind_sleep_, kShortestBlindSleep, kLongestBlindSleep);
    wake = std::min(wake, now + blind_sleep_);
  }
  return wake == kNever ? -1 : std::max<std::int64_t>(nanoseconds(wake - now), 0);
}

bool Daemon::fall_asleep() {
  if (!outside_.arm()) {
    return false;
  }
  for (Slot* slot : plant_.slots()) {
    slot->port.rx().set_asleep(true);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (switchboard_.waiting()) {
    return true;
  }
  for (Slot* slot : plant_.slots()) {
    if (!slot->port.rx().empty()) {
      wake_up();
      return false;
    }
  }
  return true;
}

void Daemon::wake_up() {
  outside_.disarm();
  for (Slot* slot : plant_.slots()) {
    slot->port.rx().set_asleep(false);
  }
}

void Daemon::serve_sockets(std::int64_t wait) {
  std::array<epoll_event, 32> events;
  const timespec timeout{wait / 1'000'000'000, wait % 1'000'000'000};
  const int count = ::epoll_pwait2(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   wait < 0 ? nullptr : &timeout, nullptr);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    // An event of this batch may belong to what an earlier one has closed.
    if (const auto found = watched_.find(fd); found != watched_.end()) {
      const bool error = (events[static_cast<std::size_t>(i)].events & (EPOLLERR | EPOLLHUP)) != 0;
      if (found->second.source == Source::outside && error && !clear_error(fd)) {
        unwatch(fd);  // a device that is gone would wake us for ever
        continue;
      }
      handle(fd, Watched(found->second));
    }
  }
}

void Daemon::handle(int fd, const Watched& watched) {
  switch (watched.source) {
    case Source::attach:
      accept_processes();
      break;
    case Source::control:
      accept_talks(fd, false);
      break;
    case Source::metrics:
      accept_talks(fd, true);
      break;
    case Source::doorbell:
    case Source::outside:
      break;
    case Source::signal:
      stop_ = true;
      break;
    case Source::knocking:
      hear_newcomer(fd);
      break;
    case Source::process:
      hear_process(*watched.slot);
      break;
    case Source::end:
      doom(*watched.slot);
      break;
    case Source::talk:
      hear_talk(fd);
      break;
  }
}

}  // namespace weft::emu
