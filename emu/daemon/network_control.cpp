// Owns the commands that change the network, and the copying of its figures.
//
// call() runs a function on the forwarding thread between two of its rounds and waits for its end.
// Frames wait meanwhile, so every call is short: memory is allocated before it, long lists are cut
// into several calls, and a modelled network is built outside and handed over whole.
#include "emu/daemon/network_control.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "emu/daemon/protocols.hpp"
#include "srd/run/clock.hpp"

namespace weft::daemon {
namespace {

constexpr std::uint32_t kMaxFaults = 65536;
constexpr std::uint64_t kMaxOccurrences = 1'000'000;
// Each may cost a system call in the forwarding thread, so they are spread over several rounds.
constexpr std::size_t kNoticesACall = 32;

}  // namespace

bool NetworkControl::add(std::unique_ptr<Slot> slot) {
  const bool added = call([&] { return forwarder_.add(slot); });
  processes_ += added ? 1U : 0U;
  return added;
}

void NetworkControl::retire(Slot& slot) {
  call([&] { forwarder_.retire(slot); });
}

std::unique_ptr<Slot> NetworkControl::take(Slot& slot) {
  --processes_;
  return call([&] { return forwarder_.take(slot); });
}

bool NetworkControl::serve(Slot& slot, std::uint64_t service, bool wanted) {
  return call([&] {
    ServiceOwners& services = slot.nic->services;
    if (!wanted) {
      services.release(service, slot.id);
    }
    return wanted && services.claim(service, slot.id);
  });
}

bool NetworkControl::group(Slot& slot, const srd::Address& address, bool wanted) {
  if (!srd::net::is_group(address)) {
    return false;
  }
  return call([&] {
    Groups& groups = forwarder_.plant().groups();
    if (!wanted) {
      groups.leave(address, slot);
    }
    return wanted && groups.join(address, slot);
  });
}

attach::Presence NetworkControl::presence_of(const srd::Address& address) const {
  if (plant().find(Protocols::nic_of(address)) != nullptr) {
    return attach::Presence::here;
  }
  return ports_.empty() ? attach::Presence::nobody : attach::Presence::unknown;
}

void NetworkControl::raise_notices(std::span<Slot* const> slots) {
  while (!slots.empty()) {
    const auto some = slots.first(std::min(slots.size(), kNoticesACall));
    slots = slots.subspan(some.size());
    call([&] {
      for (Slot* slot : some) {
        slot->port.raise_notice();
      }
    });
  }
}

void NetworkControl::forget_flows(std::span<Slot* const> slots) {
  if (!slots.empty()) {
    call([&] {
      for (Slot* slot : slots) {
        slot->asked.fill(0);
        slot->last_target = 0;
      }
    });
  }
}

Result<std::size_t> NetworkControl::add_port(const std::string& name,
                                             std::unique_ptr<srd::FrameIo> io,
                                             const PlantNic* nic) {
  const auto port = call([&] { return forwarder_.add_port(name, std::move(io), nic); });
  if (port) {
    ports_.push_back({.number = *port, .name = name, .host = nic == nullptr ? "" : nic->host});
  }
  return port;
}

std::unique_ptr<srd::FrameIo> NetworkControl::remove_port(std::size_t port) {
  std::erase_if(ports_, [&](const PortName& it) { return it.number == port; });
  return call([&] { return forwarder_.remove_port(port); });
}

// The model is built here, which may take long, and handed over whole.
void NetworkControl::start_fabric(fabric::Topology topology) {
  auto fabric = std::make_unique<LiveFabric>(
      LiveFabric::Options{.topology = std::move(topology),
                          .seed = options_.seed,
                          .dilation = options_.dilation,
                          .max_frame = options_.max_frame},
      srd::monotonic_now(),
      [this](const FrameDelivery& arrival) { forwarder_.switchboard().arrive(arrival); });
  fabric_ = fabric.get();
  call([&] { forwarder_.set_fabric(std::move(fabric)); });
  events_.note("network", {{"network", fabric_->topology().name}});
  if (on_modelled_) {
    on_modelled_();  // frames that bypass weftd would bypass the network
  }
}

// The network that an ideal one becomes when something is to be broken in it.
fabric::Topology NetworkControl::star() const {
  // Faster than any process here, with room for all frames: only faults applied to it have an
  // effect.
  const fabric::LinkProperties link{.rate = Rate::gbps(400),
                                    .delay = std::chrono::nanoseconds{200},
                                    .buffer = 64 << 20,
                                    .ecn_low = 0,
                                    .ecn_high = 0,
                                    .trimming = false};
  fabric::Topology topology;
  topology.name = "star";
  const fabric::NodeId middle = topology.add_switch("fabric");
  fabric::NodeId host = fabric::kNone;
  for (const auto& nic : plant().nics()) {
    if (nic->index == 0) {
      host = topology.add_host(nic->host);
    }
    topology.connect(host, middle, link);
  }
  return topology;
}

const fabric::Topology& NetworkControl::topology_to_be() {
  if (fabric_ != nullptr) {
    return fabric_->topology();
  }
  if (!star_) {
    star_ = star();
  }
  return *star_;
}

void NetworkControl::model() {
  if (fabric_ == nullptr) {
    start_fabric(topology_to_be());
    star_.reset();
  }
}

Result<std::uint32_t> NetworkControl::apply(const fabric::Fault& fault) {
  // The model keeps every fault and each of its occurrences, ended or not: hence limits.
  if (faults_ >= kMaxFaults ||
      fault.times > kMaxOccurrences - std::min(occurrences_, kMaxOccurrences)) {
    return fail(ErrorCode::out_of_resources,
                "this weftd had too many faults already; start another one");
  }
  if (fabric_ == nullptr) {
    // A fault that is not valid must not turn an ideal network into a modelled one: try it on a
    // copy.
    fabric::Fabric trial(topology_to_be(), {});
    if (auto applied = trial.apply(0, fault); !applied) {
      return applied;
    }
    model();
  }
  auto applied = call([&] { return forwarder_.fabric()->apply(srd::monotonic_now(), fault); });
  if (applied) {
    faults_ = std::max(faults_, *applied + 1);
    occurrences_ += fault.times;
    events_.note("fault", {{"fault", *applied}, {"where", fault.where}, {"name", fault.name}});
  }
  return applied;
}

Result<void> NetworkControl::end_fault(std::uint32_t fault) {
  if (fault >= faults_) {
    return fail(ErrorCode::not_found, "there is no fault " + std::to_string(fault));
  }
  call([&] { forwarder_.fabric()->end(srd::monotonic_now(), fault); });
  events_.note("heal", {{"fault", fault}});
  return {};
}

Result<void> NetworkControl::start_capture(const CaptureOptions& options) {
  if (capture_ != nullptr) {
    return fail(ErrorCode::already_exists,
                "a capture into '" + capture_->file() + "' is running; stop it first");
  }
  const Duration begin =
      fabric_ == nullptr ? Duration{0} : fabric_->network_time(srd::monotonic_now());
  auto capture = Capture::start(topology_to_be(), options, options_.seed, begin);
  if (!capture) {
    return tl::unexpected(capture.error());
  }
  model();
  capture_ = std::move(*capture);
  call([&] { forwarder_.fabric()->set_capture(capture_.get()); });
  events_.note("capture", {{"file", options.file}, {"links", capture_->links()}});
  return {};
}

Result<NetworkControl::StoppedCapture> NetworkControl::stop_capture() {
  if (capture_ == nullptr) {
    return fail(ErrorCode::not_found, "no capture is running");
  }
  call([&] { forwarder_.fabric()->set_capture(nullptr); });
  const bool complete = capture_->finish();
  events_.note("capture_ended", {{"file", capture_->file()},
                                 {"packets", capture_->packets()},
                                 {"skipped", capture_->skipped()},
                                 {"dropped", capture_->dropped()},
                                 {"complete", complete}});
  return StoppedCapture{std::move(capture_), complete};
}

NetworkFigures NetworkControl::figures() {
  NetworkFigures figures;
  // Reserve all memory first: the call, which the forwarding thread executes, then only copies.
  figures.processes.reserve(processes_);
  figures.ports.reserve(ports_.size());
  if (fabric_ != nullptr) {
    figures.modelled.emplace();
    figures.modelled->links.reserve(fabric_->topology().links().size());
  }
  call([&] {
    figures.counters = forwarder_.switchboard().counters();
    figures.forwarder = forwarder_.counters();
    for (const Slot* slot : forwarder_.plant().slots()) {
      figures.processes.push_back({.nic = slot->nic,
                                   .id = slot->id,
                                   .first_qpn = slot->first_qpn,
                                   .life = slot->life,
                                   .pid = slot->pid,
                                   .counters = slot->counters});
    }
    for (const PortName& name : ports_) {
      const Outside::Port& port = forwarder_.outside().port(name.number);
      figures.ports.push_back(
          {.counters = port.io->counters(), .is_up = port.io->is_up(), .dropped = port.dropped});
    }
    if (figures.modelled) {
      const LiveFabric& live = *forwarder_.fabric();
      figures.modelled->totals = live.fabric().totals();
      figures.modelled->inside = live.frames_inside();
      figures.modelled->memory = live.memory();
      for (fabric::LinkId link = 0; link < live.topology().links().size(); ++link) {
        figures.modelled->links.push_back(live.fabric().counters(link));
      }
    }
    if (capture_ != nullptr) {
      figures.captured = capture_->packets();
      figures.capture_skipped = capture_->skipped();
      figures.capture_dropped = capture_->dropped();
    }
  });
  std::sort(figures.processes.begin(), figures.processes.end(), [](const auto& a, const auto& b) {
    return std::tie(a.nic->port, a.id) < std::tie(b.nic->port, b.id);
  });
  return figures;
}

bool NetworkControl::link_up(const PlantNic& nic) const {
  return std::find(down_.begin(), down_.end(), nic.port) == down_.end();
}

void NetworkControl::note_link(std::uint32_t nic, bool up) {
  std::erase(down_, nic);
  if (!up) {
    down_.push_back(nic);
  }
}

}  // namespace weft::daemon
