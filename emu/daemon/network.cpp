// Owns weftd's dealings with the modelled network: making it, and troubling it.
#include <nlohmann/json.hpp>

#include "emu/daemon/attach_protocol.hpp"
#include "emu/daemon/daemon.hpp"
#include "srd/run/clock.hpp"
#include "srd/wire/envelope.hpp"

namespace weft::emu {
namespace {

constexpr std::uint32_t kMostFaults = 65536;
constexpr std::uint64_t kMostOccurrences = 1'000'000;

}  // namespace

void Daemon::start_fabric(Topology topology) {
  fabric_ = std::make_unique<LiveFabric>(
      LiveFabric::Options{.topology = std::move(topology),
                          .seed = options_.seed,
                          .dilation = options_.dilation,
                          .max_frame = srd::wire::kEnvelopeSizeV6 + options_.mtu},
      srd::monotonic_now(), [this](const Arrival& arrival) { switchboard_.arrive(arrival); });
  switchboard_.set_fabric(fabric_.get());
  events_.note("network", {{"network", fabric_->topology().name}});
  // What passes by weftd passes by the network.
  for (const auto& [one, other] : direct_pairs_) {
    take_ring_back(*one, *other);
    take_ring_back(*other, *one);
    one->direct_pairs = other->direct_pairs = 0;
  }
  direct_pairs_.clear();
}

// A link changed: the processes of a NIC whose own one it is see it as they would on a real one.
void Daemon::watch_links() {
  const Fabric& fabric = fabric_->fabric();
  outages_ = fabric.outages();
  for (const auto& nic : plant_.nics()) {
    const bool up = !fabric.is_down(fabric.routes().uplink(nic->port)) &&
                    !fabric.is_down(fabric.routes().downlink(nic->port));
    if (up == nic->link_up) {
      continue;
    }
    nic->link_up = up;
    events_.note("link", {{"host", nic->host}, {"nic", nic->index}, {"up", up}});
    for (const auto& slot : nic->slots) {
      if (slot != nullptr) {
        tell_of_link(*slot);
      }
    }
  }
}

Topology Daemon::star() const {
  // Faster than any process here, with room for all of them: only what is applied to it is felt.
  const LinkProperties link{.rate = Rate::gbps(400),
                            .delay = std::chrono::nanoseconds{200},
                            .buffer = 64 << 20,
                            .ecn_low = 0,
                            .ecn_high = 0,
                            .trimming = false};
  Topology topology;
  topology.name = "star";
  const NodeId middle = topology.add_switch("fabric");
  NodeId host = kNone;
  for (const auto& nic : plant_.nics()) {
    if (nic->index == 0) {
      host = topology.add_host(nic->host);
    }
    topology.connect(host, middle, link);
  }
  return topology;
}

const Topology& Daemon::topology_to_be() {
  if (fabric_ != nullptr) {
    return fabric_->topology();
  }
  if (!star_) {
    star_ = star();
  }
  return *star_;
}

void Daemon::model() {
  if (fabric_ == nullptr) {
    start_fabric(topology_to_be());
    star_.reset();
  }
}

Result<std::uint32_t> Daemon::apply(const Fault& fault) {
  // The network remembers every fault and each of its occurrences.
  if (faults_ >= kMostFaults ||
      fault.times > kMostOccurrences - std::min(occurrences_, kMostOccurrences)) {
    return fail(ErrorCode::out_of_resources,
                "this weftd had too many faults already; start another one");
  }
  if (fabric_ == nullptr) {
    // What is wrong shall not make a modelled network of an ideal one.
    Fabric trial(topology_to_be(), {});
    if (auto applied = trial.apply(0, fault); !applied) {
      return applied;
    }
    model();
  }
  auto applied = fabric_->apply(srd::monotonic_now(), fault);
  if (applied) {
    faults_ = std::max(faults_, *applied + 1);
    occurrences_ += fault.times;
    events_.note("fault", {{"fault", *applied}, {"where", fault.where}, {"name", fault.name}});
  }
  return applied;
}

Result<void> Daemon::start_capture(const CaptureOptions& options) {
  if (capture_ != nullptr) {
    return fail(ErrorCode::already_exists,
                "a capture into '" + capture_->file() + "' is running; stop it first");
  }
  const Picos begin = fabric_ == nullptr ? 0 : fabric_->network_time(srd::monotonic_now());
  auto capture = Capture::start(topology_to_be(), options, options_.seed, begin);
  if (!capture) {
    return tl::unexpected(capture.error());
  }
  model();
  capture_ = std::move(*capture);
  fabric_->set_capture(capture_.get());
  events_.note("capture", {{"file", options.file}, {"links", capture_->links()}});
  return {};
}

Result<void> Daemon::stop_capture() {
  if (capture_ == nullptr) {
    return fail(ErrorCode::not_found, "no capture is running");
  }
  fabric_->set_capture(nullptr);
  events_.note("capture_ended",
               {{"file", capture_->file()}, {"packets", capture_->writer().packets()}});
  capture_.reset();
  return {};
}

Result<void> Daemon::end_fault(std::uint32_t fault) {
  if (fault >= faults_) {
    return fail(ErrorCode::not_found, "there is no fault " + std::to_string(fault));
  }
  fabric_->end(srd::monotonic_now(), fault);
  events_.note("heal", {{"fault", fault}});
  return {};
}

}  // namespace weft::emu
