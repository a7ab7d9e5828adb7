// Owns the rounds of forwarding, and falling asleep without missing a frame.
#include "emu/daemon/forwarder.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "srd/base/check.hpp"
#include "srd/run/clock.hpp"
#include "srd/run/idle.hpp"

namespace weft::daemon {
namespace {

// If the modelled network delivers the next frame this soon, spin instead of yielding.
constexpr Duration kSoon = std::chrono::microseconds{1};
// While a frame waits for room in a full ring: the ring's reader does not ring when it makes room,
// so look again after this time.
constexpr Duration kWaitingSleep = std::chrono::microseconds{50};

// A port to the outside without a descriptor to wait on is polled, less and less often while it is
// quiet.
constexpr Duration kMinBlindSleep = std::chrono::microseconds{50};
constexpr Duration kMaxBlindSleep = std::chrono::milliseconds{2};

// Bursts taken from the ring of a process that has left: more than a ring holds. More than that can
// only come from a child that goes on writing.
constexpr std::uint32_t kMaxLastBursts = 1024;

// Frames copied in one round out of the ring of a process that has left: a bounded share, as
// everything in a round.
constexpr int kMaxLoansAtOnce = 64;

// Reads the pending error of a socket, which clears it. False: it is no socket, and its error
// stays.
bool clear_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0;
}

SlotKey key_of(const Slot& slot) {
  return {.nic = slot.nic->port, .id = slot.id, .life = slot.life};
}

}  // namespace

Forwarder::Forwarder(Plant& plant, std::size_t max_frame)
    : plant_(plant),
      switchboard_(plant, [this](Slot& from, Slot& to) { return consider_direct(from, to); }),
      outside_(max_frame) {}

Result<void> Forwarder::open() {
  if (auto opened = calls_.open(); !opened) {
    return opened;
  }
  if (auto opened = notices_.open(); !opened) {
    return opened;
  }
  if (!wait_.open() || !watch(calls_.wait_fd(), {}, true)) {
    return fail(ErrorCode::out_of_resources, srd::errno_text("weftd: its event loop"));
  }
  return {};
}

bool Forwarder::watch(int fd, const Watched& watched, bool edges) {
  if (!wait_.add(fd, edges ? EPOLLIN | EPOLLET : EPOLLIN)) {
    return false;
  }
  watched_[fd] = watched;
  return true;
}

void Forwarder::unwatch(int fd) {
  if (watched_.erase(fd) != 0) {
    wait_.remove(fd);
  }
}

void Forwarder::end() {
  calls_.run([this] { end_ = true; });  // the last call: none waits after it
}

void Forwarder::run() {
  // The receiver of a frame may need this core to run: no spinning at all, unless a frame inside of
  // the network is about to come out.
  srd::Idler idler({.spin = Duration{0}});
  while (!end_) {
    const TimePoint now = srd::monotonic_now();
    if (round(now) != 0) {
      idler.worked();
    } else if (fabric_ != nullptr && fabric_->next_event() < now + kSoon) {
      __builtin_ia32_pause();
    } else if (idler.pause(now)) {
      if (fall_asleep()) {
        ++counters_.sleeps;
        sleep(time_to_sleep(now));
        wake_up();
      }
      if (fabric_ != nullptr || !outside_.blind()) {
        idler.worked();  // otherwise a blind port is polled once, and then back to sleep
      }
    }
  }
}

std::size_t Forwarder::round(TimePoint now) {
  std::size_t work = 0;
  ++counters_.rounds;
  if (calls_.serve()) [[unlikely]] {
    ++counters_.calls;
    ++work;
  }
  switchboard_.begin_round();
  for (Slot* slot : plant_.slots()) {
    const std::size_t pumped = switchboard_.pump(now, *slot);
    work += pumped;
    if ((slot->doomed || slot->ending) && look_after(*slot, pumped)) [[unlikely]] {
      ++work;
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
  notices_.flush();
  return work;
}

// A slot that broke its ring: tells the control thread, once. One that is ending: empties its ring,
// copies frames that the modelled network still has on loan from it, and then tells the control
// thread that the slot can be taken out.
bool Forwarder::look_after(Slot& slot, std::size_t pumped) {
  if (slot.drained) {
    return false;
  }
  if (!slot.ending) {
    slot.told = slot.told || notices_.push({.kind = Notice::Kind::broken, .slot = key_of(slot)});
    return !slot.told;
  }
  // What it wrote between our last look at its ring and its end still counts: its last
  // acknowledgements, above all.
  if (pumped != 0 && ++slot.last_bursts < kMaxLastBursts) {
    return true;
  }
  for (int i = 0; i < kMaxLoansAtOnce && !slot.loans.empty(); ++i) {
    fabric_->call_in(slot.loans);  // the frames are under way; the ring's memory is about to go
  }
  slot.drained =
      slot.loans.empty() && notices_.push({.kind = Notice::Kind::drained, .slot = key_of(slot)});
  return !slot.drained;
}

std::int64_t Forwarder::time_to_sleep(TimePoint now) {
  TimePoint wake = switchboard_.waiting() ? now + kWaitingSleep : kNever;
  if (fabric_ != nullptr) {
    wake = std::min(wake, fabric_->next_event());
  }
  if (outside_.blind()) {
    blind_sleep_ = std::clamp(2 * blind_sleep_, kMinBlindSleep, kMaxBlindSleep);
    wake = std::min(wake, now + blind_sleep_);
  }
  return wake == kNever ? -1 : std::max<std::int64_t>(nanoseconds(wake - now), 0);
}

// Declares every ring's reader asleep, makes a full fence, and looks once more: a process that
// wrote before the fence is seen here, one that writes later sees `asleep` and rings. False: there
// is work.
bool Forwarder::fall_asleep() {
  if (!outside_.arm()) {
    return false;
  }
  for (Slot* slot : plant_.slots()) {
    slot->port.rx().set_asleep(true);
  }
  if (!calls_.arm()) {  // contains the full fence
    wake_up();
    return false;
  }
  if (switchboard_.waiting()) {
    return true;  // rings are not empty, but their frames have nowhere to go: kWaitingSleep
  }
  for (Slot* slot : plant_.slots()) {
    if (!slot->port.rx().empty()) {
      wake_up();
      return false;
    }
  }
  return true;
}

void Forwarder::wake_up() {
  outside_.disarm();
  calls_.disarm();
  for (Slot* slot : plant_.slots()) {
    slot->port.rx().set_asleep(false);
  }
}

// For `wait` nanoseconds at the most; -1: without a limit. Descriptors are only read where they
// have to be: what they announce is found by the next round.
void Forwarder::sleep(std::int64_t wait) {
  std::array<epoll_event, 32> events;
  const int count = wait_.wait(events, wait);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const auto found = watched_.find(event.data.fd);
    if (found == watched_.end()) {
      continue;
    }
    if (found->second.source == Watched::Source::bell && !found->second.slot->port.bell().clear()) {
      found->second.slot->port.cut_off();
    }
    const bool error = (event.events & (EPOLLERR | EPOLLHUP)) != 0;
    if (found->second.source == Watched::Source::outside && error && !clear_error(event.data.fd)) {
      unwatch(event.data.fd);  // a device that is gone stays in error and would wake us for ever
    }
  }
}

bool Forwarder::add(std::unique_ptr<Slot>& slot) {
  if (!watch(slot->port.bell().fd(), {.source = Watched::Source::bell, .slot = slot.get()}, true)) {
    return false;
  }
  plant_.put(std::move(slot));
  return true;
}

void Forwarder::retire(Slot& slot) {
  slot.doomed = true;
  slot.ending = true;
}

std::unique_ptr<Slot> Forwarder::take(Slot& slot) {
  WEFT_CHECK(slot.drained);
  unwatch(slot.port.bell().fd());
  switchboard_.forget(slot);
  return plant_.take(slot);
}

Result<std::size_t> Forwarder::add_port(std::string name, std::unique_ptr<srd::FrameIo> io,
                                        const PlantNic* nic) {
  const int fd = io->wait_fd();
  auto port = outside_.add(std::move(name), std::move(io), nic);
  if (!port) {
    return port;
  }
  switchboard_.set_outside(&outside_);
  if (fd >= 0 && !watch(fd, {.source = Watched::Source::outside}, false)) {
    (void)outside_.remove(*port);
    return fail(ErrorCode::out_of_resources, srd::errno_text("weftd: watching a port"));
  }
  return port;
}

std::unique_ptr<srd::FrameIo> Forwarder::remove_port(std::size_t port) {
  auto io = outside_.remove(port);
  unwatch(io->wait_fd());
  return io;
}

void Forwarder::set_fabric(std::unique_ptr<LiveFabric> fabric) {
  fabric_ = std::move(fabric);
  switchboard_.set_fabric(fabric_.get());
}

// A process sends to another one: asks the control thread for a direct ring, unless it has asked
// already. True: that is done, or the two cannot have one. False: the queue of notices is full; try
// again.
bool Forwarder::consider_direct(Slot& from, Slot& to) {
  std::uint32_t& asked = from.asked[to.serial % Slot::kAsked];
  if (!from.direct_rings || !to.direct_rings || &from == &to || asked == to.serial) {
    return true;
  }
  if (!notices_.push({.kind = Notice::Kind::flow, .slot = key_of(from), .peer = key_of(to)})) {
    return false;
  }
  asked = to.serial;
  return true;
}

// Some link changed. If it is a NIC's own one, the NIC's processes are told, as a driver tells of a
// cable that is pulled.
void Forwarder::watch_links() {
  const fabric::Fabric& fabric = fabric_->fabric();
  for (const auto& nic : plant_.nics()) {
    const bool up = !fabric.is_down(fabric.routes().uplink(nic->port)) &&
                    !fabric.is_down(fabric.routes().downlink(nic->port));
    if (up == nic->link_up) {
      continue;
    }
    if (!notices_.push({.kind = Notice::Kind::link,
                        .up = up,
                        .slot = {.nic = nic->port, .id = 0, .life = {}}})) {
      return;  // the rest in the next round
    }
    nic->link_up = up;
  }
  outages_ = fabric.outages();
}

}  // namespace weft::daemon
