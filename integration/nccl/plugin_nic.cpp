// Owns attaching a device of the plugin to its network.
//
// There are three ways to find a carrier (find_place()): a weftd that the environment names, an
// address for UDP that the environment names, or, without either, a free loopback address. On top
// of the carrier stand the engine and the plugin's Core, driven by a Host, whose background thread
// makes progress while NCCL's threads do not call.
#include "integration/nccl/plugin_nic.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "emu/attach/client.hpp"
#include "srd/base/rng.hpp"
#include "srd/engine/process_config.hpp"
#include "srd/io/udp_io.hpp"
#include "srd/net/address_text.hpp"
#include "srd/run/clock.hpp"
#include "srd/run/last_rounds.hpp"
#include "srd/wire/srd_codec.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::nccl {
namespace {

using UdpIo = srd::UdpIo<srd::wire::SrdCodec>;

// UDP source ports that the engine may use as paths, so that ECMP in a real network spreads them.
constexpr std::uint16_t kUdpPaths = 16;
constexpr std::size_t kLoopbackMtu = 8192 + sizeof(srd::wire::DataHeader);
constexpr std::size_t kEthernetMtu = 1408;  // with all headers below 1500
constexpr int kDefaultSpeed = 100'000;      // Mb/s, where it is not known
// LL128 looks at lines of this many bytes: a packet holds whole ones, so none is ever half there.
constexpr std::uint32_t kLine = 128;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Nonces, secrets and Q_Keys are drawn from this: guessing one must be hard for other users of the
// machine. The clock and the process number are only for kernels without getrandom().
std::uint64_t random_word() {
  std::uint64_t word = 0;
  if (::getrandom(&word, sizeof word, 0) != sizeof word) {
    word = mix64(static_cast<std::uint64_t>(nanoseconds(srd::monotonic_now())) ^
                 static_cast<std::uint64_t>(::getpid()));
  }
  return word;
}

// A NIC's place in its network. weftd assigns it; with UDP it follows from the address and the
// clock.
struct Place {
  srd::Address address;
  srd::AttachmentId attachment;
  srd::Life life;
  srd::Qpn first_qpn;
  std::unique_ptr<srd::PacketIo> io;
};

Result<Place> attach_to_weftd(const Settings& settings, std::size_t index) {
  attach::AttachOptions options;
  options.socket = settings.socket;
  options.nic = static_cast<std::uint32_t>(index);
  auto attached = attach::attach(std::move(options));
  if (!attached) {
    return tl::unexpected(attached.error());
  }
  return Place{attached->address, attached->id, attached->life, srd::Qpn{attached->first_qpn + 1},
               std::move(attached->io)};
}

bool is_loopback(const srd::Address& address) {
  return address.is_v4() && address.v4_bytes()[0] == std::byte{127};
}

// A later process at the same address needs a later life, or its peers would take its packets for
// late ones of the former process. The unit is 2^24 ns (16.8 ms); the number wraps after years.
// Never 0.
srd::Life life_of_now() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const auto time = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
                    static_cast<std::uint64_t>(now.tv_nsec);
  return srd::Life{static_cast<std::uint32_t>(time >> 24) | 1U};
}

Result<Place> open_udp(const Settings& settings, const srd::Address& address) {
  const std::size_t mtu = settings.mtu != 0      ? settings.mtu
                          : is_loopback(address) ? kLoopbackMtu
                                                 : kEthernetMtu;
  auto io = UdpIo::create({.own = address, .mtu = mtu, .paths = kUdpPaths});
  if (!io) {
    return tl::unexpected(io.error());
  }
  return Place{address, srd::AttachmentId{1}, life_of_now(), srd::Qpn{257}, std::move(*io)};
}

// Without any configuration. Ranks on one machine find each other all the same, because NCCL
// carries the address in the handle.
Result<Place> open_any_loopback(const Settings& settings) {
  // Another process may have that address; one of about eight million is free at the first try.
  constexpr int kTries = 16;
  Result<Place> place = fail(ErrorCode::out_of_resources, "no loopback address");
  for (int i = 0; i < kTries && !place; ++i) {
    const auto lot = static_cast<unsigned>(random_word());
    place = open_udp(
        settings, srd::Address::v4(127, 64 + lot % 128, (lot >> 8) % 256, 1 + (lot >> 16) % 254));
  }
  return place;
}

Result<Place> find_place(const Settings& settings, std::size_t index) {
  if (!settings.socket.empty()) {
    return attach_to_weftd(settings, index);
  }
  if (settings.addresses.empty()) {
    return open_any_loopback(settings);
  }
  const auto address = srd::parse_address(settings.addresses[index]);
  if (!address) {
    return tl::unexpected(address.error());
  }
  return open_udp(settings, *address);
}

// The transport's configuration for NCCL: packets hold whole lines of LL128, because a reader of
// such a line may look at any of them alone.
srd::EngineConfig tune(const Settings& settings, const srd::IoCapabilities& carrier,
                       const Place& place) {
  srd::EngineConfig config = srd::process_config(carrier, place.attachment, place.life);
  config.peer_timeout = settings.timeout;
  // A rest of a line goes. A payload shorter than one line stays as it is: LL128 is not possible
  // there.
  config.mtu_payload -= config.mtu_payload > kLine ? config.mtu_payload % kLine : 0;
  if (!settings.path_selector.empty()) {
    config.path_selector = settings.path_selector;
  }
  return config;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    words.push_back(word);
  }
  return words;
}

// Those of so many NICs that are this process's. A container may have some of its host's; the tree
// that shows it their devices then has a file for each. A tree without any (`--device none`) says
// nothing of them.
std::vector<std::size_t> given_nics(const Settings& settings, std::size_t count) {
  const std::string tree = settings.socket.empty() ? "" : variable("WEFT_DEVICES");
  std::vector<std::size_t> all;
  std::vector<std::size_t> given;
  for (std::size_t nic = 0; nic < count; ++nic) {
    all.push_back(nic);
    if (!tree.empty() && ::access((tree + "/nic" + std::to_string(nic)).c_str(), F_OK) == 0) {
      given.push_back(nic);
    }
  }
  return given.empty() ? all : given;
}

}  // namespace

// Addresses beat the socket: `weft run` sets WEFT_SOCKET for all programs, so somebody who also
// names an address means it. Numbers that cannot be read count as not set.
Settings settings_from_environment() {
  Settings settings;
  settings.socket = variable("WEFT_SOCKET");
  settings.addresses = words_of(variable("WEFT_NCCL_ADDRESS"));
  if (!settings.addresses.empty()) {
    settings.socket.clear();
  }
  settings.mtu =
      static_cast<std::size_t>(std::strtoul(variable("WEFT_NCCL_MTU").c_str(), nullptr, 10));
  if (const double seconds = std::strtod(variable("WEFT_NCCL_TIMEOUT").c_str(), nullptr);
      seconds > 0) {
    settings.timeout = Duration{static_cast<std::int64_t>(seconds * 1e9)};
  }
  settings.path_selector = variable("WEFT_NCCL_PATH_SELECTOR");
  return settings;
}

Result<std::vector<DeviceDescription>> find_devices(const Settings& settings) {
  std::size_t count = std::max<std::size_t>(settings.addresses.size(), 1);
  std::vector<std::string> names = settings.addresses;
  if (!settings.socket.empty()) {
    attach::AttachOptions options;
    options.socket = settings.socket;
    const auto nics = attach::describe_host(std::move(options));
    if (!nics) {
      return tl::unexpected(nics.error());
    }
    count = nics->size();
    for (const srd::Address& address : *nics) {
      names.push_back(srd::to_text(address));
    }
  }
  std::vector<DeviceDescription> devices;
  for (const std::size_t nic : given_nics(settings, count)) {
    DeviceDescription& device = devices.emplace_back();
    device.name = "weft" + std::to_string(nic);
    device.nic = nic;
    // Derived from the address where that is known, so that all processes on one NIC give it the
    // same number: NCCL takes equal numbers for one physical port and lets its users share the
    // bandwidth.
    device.guid =
        nic < names.size() ? mix64(std::hash<std::string>{}(names[nic])) : random_word() | 1U;
    device.speed = kDefaultSpeed;
  }
  return devices;
}

Result<std::unique_ptr<PluginNic>> PluginNic::start(const Settings& settings,
                                                    const DeviceDescription& device) {
  auto place = find_place(settings, device.nic);
  if (!place) {
    return tl::unexpected(place.error());
  }
  const srd::IoCapabilities carrier = place->io->capabilities();
  const srd::EngineConfig config = tune(settings, carrier, *place);
  if (auto valid = srd::validate(config, carrier); !valid) {
    return tl::unexpected(valid.error());
  }
  std::unique_ptr<PluginNic> nic(new PluginNic);
  auto machine = NetMachine::create(config, {.address = place->address,
                                             .attachment = place->attachment,
                                             .first_qpn = place->first_qpn,
                                             .seed = random_word(),
                                             .owner = nic.get()});
  if (!machine) {
    return tl::unexpected(machine.error());
  }
  auto host = Host::create(std::move(*machine), std::move(place->io));
  if (!host) {
    return tl::unexpected(host.error());
  }
  nic->host_ = std::move(*host);
  // The background thread inherits this mask: the program's signals are for its own threads.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  nic->background_ = std::make_unique<srd::BackgroundThread<NetMachine>>(*nic->host_);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return nic;
}

// The background thread uses the host, so it ends first.
PluginNic::~PluginNic() { background_.reset(); }

// Rarely: NCCL's threads yield by themselves, and every turn given away twice is a turn lost.
void yield_after_vain_polls(bool in_vain) {
  constexpr int kBeforeYield = 64;
  static thread_local int in_a_row = 0;
  in_a_row = in_vain ? in_a_row + 1 : 0;
  if (in_a_row == kBeforeYield) {
    in_a_row = 0;
    srd::give_way();
  }
}

void PluginNic::drain(Duration limit) {
  const TimePoint end = srd::monotonic_now() + limit;
  while (!with_machine([](NetMachine& machine) { return machine.idle(); }) &&
         srd::monotonic_now() < end) {
    (void)poll();
    srd::give_way();
  }
  (void)srd::make_last_rounds(*host_);
}

void PluginNic::finish_closing() {
  constexpr Duration kPatience = std::chrono::seconds{1};
  const TimePoint begin = srd::monotonic_now();
  const TimePoint end = begin + kPatience - Duration{waited_.load(std::memory_order_relaxed)};
  while (srd::monotonic_now() < end && with([](Core& core) { return core.is_closing(); })) {
    (void)poll();
    srd::give_way();
  }
  const TimePoint closed = srd::monotonic_now();
  waited_.fetch_add(nanoseconds(closed - begin), std::memory_order_relaxed);
  // Apart from that patience: peers that do not answer must not use up what messages need.
  const bool may_ask = Duration{asked_.load(std::memory_order_relaxed)} < kPatience;
  if (may_ask && with_machine([](NetMachine& machine) { return machine.stop_watching(); }) &&
      !srd::make_last_rounds(*host_)) {
    asked_.fetch_add(nanoseconds(srd::monotonic_now() - closed), std::memory_order_relaxed);
  }
}

// Appends one line of JSON; several processes may name the same file. look() takes no action on the
// device: the numbers are those of the moment.
Result<void> PluginNic::write_report(const std::string& path, const std::string& device) {
  std::ostringstream text;
  host_->look([&](NetMachine& machine) {
    const CoreCounters& core = machine.core().counters();
    const srd::Counters& engine = machine.engine().counters();
    const std::pair<const char*, std::uint64_t> counts[] = {
        {"sends", core.sends},
        {"receives", core.receives},
        {"sent_bytes", core.sent_bytes},
        {"received_bytes", core.received_bytes},
        {"eager", core.eager},
        {"early", core.early},
        {"sends_waited", core.sends_waited},
        {"overtaken", core.overtaken},
        {"stray_immediates", core.stray_immediates},
        {"stray_controls", core.stray_controls},
        {"malformed_controls", core.malformed_controls},
        {"stalls", core.stalls},
        {"failed_connections", core.failed_connections},
        {"retransmitted", engine.retrans_pkts}};
    text << "{\"device\": \"" << device << "\", \"pid\": " << ::getpid();
    for (const auto& [name, count] : counts) {
      text << ", \"" << name << "\": " << count;
    }
    if (const Rma* const rma = machine.opened_rma()) {
      const RmaCounters& counters = rma->counters();
      text << ", \"puts\": " << counters.puts << ", \"gets\": " << counters.gets
           << ", \"signals\": " << counters.signals
           << ", \"signals_applied\": " << counters.signals_applied
           << ", \"signals_held\": " << counters.signals_held
           << ", \"rma_stalls\": " << counters.stalls << ", \"rma_strays\": " << counters.strays
           << ", \"rma_malformed\": " << counters.malformed
           << ", \"failed_members\": " << counters.failed_members;
    }
    text << "}\n";
  });
  std::FILE* const file = std::fopen(path.c_str(), "ae");
  if (file == nullptr) {
    return fail(ErrorCode::io_error, srd::errno_text("writing " + path));
  }
  const std::string line = text.str();
  (void)std::fwrite(line.data(), 1, line.size(), file);
  (void)std::fclose(file);
  return {};
}

}  // namespace weft::nccl
