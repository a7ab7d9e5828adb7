// Owns the event loop of the virtual world.
//
// A step goes to the next moment at which anything happens, delivers all packets that arrive then,
// serves all deadlines that have passed, and lets every engine send. Hosts are visited in the order
// of their numbers, so a run depends on nothing but the calls and the seed.
#include "emu/world/world.hpp"

#include <algorithm>

namespace weft::world {
namespace {

// More than any window allows: an engine that sends so many never stops.
constexpr std::uint32_t kMaxPacketsAtOnce = 2'000'000;
constexpr std::uint32_t kMaxStepsAtOneTime = 10'000;

}  // namespace

srd::Address address_of_host(std::uint32_t index) {
  return srd::Address::v4(10, 0, index >> 8, index + 1);
}

std::uint32_t VirtualWorld::add_host(const srd::EngineConfig& config) {
  const auto index = static_cast<std::uint32_t>(hosts_.size());
  hosts_.emplace_back();
  network_.attach(address_of_host(index));
  start(index, config);
  return index;
}

void VirtualWorld::crash(std::uint32_t host) {
  hosts_[host].engine.reset();
  hosts_[host].paused = false;
  hosts_[host].waiting.clear();
}

void VirtualWorld::start(std::uint32_t host, const srd::EngineConfig& config) {
  hosts_[host].engine = std::make_unique<srd::Engine>(config);
}

// What has waited arrives now, in its order, and deadlines that have passed are served.
void VirtualWorld::resume(std::uint32_t host) {
  Host& h = hosts_[host];
  h.paused = false;
  std::vector<VirtualNetwork::InFlight> waiting;
  waiting.swap(h.waiting);
  for (auto& packet : waiting) {
    deliver(host, packet);
    network_.recycle(std::move(packet));
  }
  if (h.engine != nullptr) {
    h.engine->on_timeout(now_);
  }
}

// A host without an engine has crashed: packets to it vanish.
void VirtualWorld::deliver(std::uint32_t index, const VirtualNetwork::InFlight& packet) {
  Host& host = hosts_[index];
  if (host.engine == nullptr) {
    return;
  }
  if (on_delivery_) {
    on_delivery_(index, packet);
  }
  srd::RxPacket rx;
  rx.from = packet.source;
  rx.path = packet.path;
  rx.ecn = packet.ecn;
  rx.trimmed = packet.trimmed;
  const std::span<const std::byte> bytes{packet.bytes};
  // Every other packet arrives in two pieces, as from carriers that keep header and payload apart.
  const bool split = packet.header_size < bytes.size() && (network_.counts().delivered & 1) != 0;
  rx.bytes = split ? bytes.first(packet.header_size) : bytes;
  rx.more = split ? bytes.subspan(packet.header_size) : std::span<const std::byte>{};
  host.engine->on_packet(now_, rx);
}

// Engines see what others have sent only when it arrives, so their order matters only for ties in
// the network.
void VirtualWorld::pump() {
  srd::TxPacket packet;
  for (std::uint32_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].engine == nullptr || hosts_[i].paused) {
      continue;
    }
    std::uint32_t count = 0;
    while (hosts_[i].engine->next_transmit(now_, packet)) {
      network_.send(now_, i, packet);
      if (++count > kMaxPacketsAtOnce) {
        broken_ = "host " + std::to_string(i) + " never stops sending";
        return;
      }
    }
  }
}

TimePoint VirtualWorld::next_event() const {
  TimePoint next = network_.next_event();
  for (const Host& host : hosts_) {
    if (host.engine != nullptr && !host.paused) {
      next = std::min(next, host.engine->next_timeout());
    }
  }
  return next;
}

// Engines send first, since next_event() has to see what they have. Then packets come before
// deadlines: an acknowledgement that arrives at the moment of a time-out prevents it.
bool VirtualWorld::step(TimePoint limit) {
  pump();
  const TimePoint next = next_event();
  if (next > limit || !broken_.empty()) {
    now_ = std::max(now_, broken_.empty() ? limit : now_);
    return false;
  }
  now_ = std::max(now_, next);
  ++steps_;
  VirtualNetwork::InFlight packet;
  while (network_.receive(now_, packet)) {
    if (packet.to < hosts_.size() && hosts_[packet.to].paused) {
      hosts_[packet.to].waiting.push_back(std::move(packet));
      continue;
    }
    if (packet.to < hosts_.size()) {
      deliver(packet.to, packet);
    }
    network_.recycle(std::move(packet));
  }
  for (Host& host : hosts_) {
    if (host.engine != nullptr && !host.paused && host.engine->next_timeout() <= now_) {
      host.engine->on_timeout(now_);
    }
  }
  pump();
  check_progress();
  return true;
}

// An engine whose deadline stays in the past would stop the clock.
void VirtualWorld::check_progress() {
  stuck_ = stuck_at_ == now_ ? stuck_ + 1 : 0;
  stuck_at_ = now_;
  if (stuck_ > kMaxStepsAtOneTime) {
    for (std::uint32_t i = 0; i < hosts_.size(); ++i) {
      if (hosts_[i].engine != nullptr && hosts_[i].engine->next_timeout() <= now_) {
        broken_ = "host " + std::to_string(i) + " keeps a deadline that has passed";
        return;
      }
    }
    broken_ = "time stands still";
  }
}

}  // namespace weft::world
