// Owns bringing a NIC up in this process.
#include "integration/preload/nic_runner.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "emu/daemon/client.hpp"
#include "integration/preload/loopback_io.hpp"
#include "srd/run/process_config.hpp"

namespace weft::preload {
namespace {

namespace devices = emu::devices;
namespace kernel = emu::kernel;

// What weftd says of the NIC's link, for a device that is there a moment later.
struct LinkWatch {
  kernel::Device* device = nullptr;
  bool up = true;

  void set(bool now_up) {
    up = now_up;
    if (device != nullptr) {
      device->set_port_state(up);
    }
  }
};

struct Network {
  srd::Address address;
  devices::efa::QpnBlock qpns;
  srd::AttachmentId attachment;
  srd::Life life;
  std::unique_ptr<srd::PacketIo> io;
  std::shared_ptr<LinkWatch> link = std::make_shared<LinkWatch>();
};

Result<Network> join(const kernel::NicDescription& description) {
  const auto address = kernel::parse_address(description.address);
  if (!address) {
    return tl::unexpected(address.error());
  }
  const char* const socket = std::getenv("WEFT_SOCKET");
  if (socket == nullptr || *socket == '\0') {
    constexpr std::size_t kMtu = 9000;
    return Network{*address, devices::efa::QpnBlock{256, 256}, srd::AttachmentId{1}, srd::Life{1},
                   std::make_unique<LoopbackIo>(*address, kMtu)};
  }
  emu::AttachOptions options;
  options.nic = description.index;
  const auto link = std::make_shared<LinkWatch>();
  // Called by the thread that polls, which holds the lock.
  options.on_link = [link](bool up) { link->set(up); };
  auto attached = emu::attach(std::move(options));
  if (!attached) {
    return tl::unexpected(attached.error());
  }
  return Network{attached->address,
                 devices::efa::QpnBlock{attached->first_qpn, attached->qpn_count},
                 attached->id,
                 attached->life,
                 std::move(attached->io),
                 link};
}

}  // namespace

Result<std::unique_ptr<NicRunner>> NicRunner::start(const kernel::NicDescription& description,
                                                    kernel::Statistics* statistics) {
  auto network = join(description);
  if (!network) {
    return tl::unexpected(network.error());
  }
  const srd::EngineConfig config = devices::efa::engine_config(
      description,
      srd::process_config(network->io->capabilities(), network->attachment, network->life));
  if (const auto valid = srd::validate(config); !valid) {
    return tl::unexpected(valid.error());
  }
  auto device =
      std::make_unique<Device>(description, network->address, network->qpns, config, statistics);
  Device& borrowed = *device;
  network->link->device = &borrowed;
  borrowed.set_port_state(network->link->up);
  auto host = srd::Host<Device>::create(std::move(device), std::move(network->io));
  if (!host) {
    return tl::unexpected(host.error());
  }
  return std::unique_ptr<NicRunner>(new NicRunner(std::move(*host), borrowed));
}

void NicRunner::exclusively(const std::function<void()>& work) {
  host_->with([&work](Device& /*device*/, TimePoint /*now*/) { work(); });
}

void NicRunner::need_background() {
  // The application's signals are for its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  background_ = std::make_unique<srd::BackgroundThread<Device>>(*host_, /*watchful=*/true);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void NicRunner::push() {
  if (host_->push()) {
    host_->linger();
  }
}

void NicRunner::ring() {
  if (host_->held_here()) {
    (void)host_->push();  // leaves a mark for the round that this signal handler interrupted
  } else if (host_->ring()) {
    host_->linger();
  }
}

void NicRunner::linger() {
  constexpr std::chrono::milliseconds kMoment{100};
  constexpr std::chrono::microseconds kMostOwed{500};
  bool perfect = true;
  Duration owed = kMostOwed;
  const auto look = [&](Device& device, TimePoint /*now*/) {
    perfect = device.network_is_perfect();
    owed = std::min<Duration>(kMostOwed, 2 * device.engine().config().ack_delay);
  };
  const TimePoint begin = srd::monotonic_now();
  for (TimePoint now = begin; !host_->held_here(); now = srd::monotonic_now()) {
    const std::size_t work = host_->poll(look);
    if (now - begin >= (perfect ? (work == 0 ? owed : kMostOwed) : Duration{kMoment})) {
      return;
    }
    if (work == 0 && !perfect) {
      std::this_thread::sleep_for(std::chrono::microseconds{200});
    }
  }
}

void NicRunner::expect_events() {
  if (host_->held_here()) {
    return;
  }
  // Waits for the lock instead of only trying it: the next poll overwrites the arming.
  host_->look([](Device& device) { device.look_at_arms(); });
  host_->expect_events();
  background_->take_over_now();
}

}  // namespace weft::preload
