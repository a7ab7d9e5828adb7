// Owns weftd's dealings with the modelled network: making it, and troubling it.
#include "emu/daemon/attach_protocol.hpp"
#include "emu/daemon/daemon.hpp"
#include "srd/run/clock.hpp"
#include "srd/wire/envelope.hpp"

namespace weft::emu {

void Daemon::start_fabric(Topology topology) {
  fabric_ = std::make_unique<LiveFabric>(
      LiveFabric::Options{.topology = std::move(topology),
                          .seed = options_.seed,
                          .dilation = options_.dilation,
                          .max_frame = srd::wire::kEnvelopeSizeV6 + options_.mtu},
      srd::monotonic_now(), [this](const Arrival& arrival) { switchboard_.arrive(arrival); });
  switchboard_.set_fabric(fabric_.get());
  // What passes by weftd passes by the network.
  for (const auto& [one, other] : direct_pairs_) {
    const auto tell = [](Slot& slot, const Slot& peer) {
      DirectNotice notice;
      notice.header.type = AttachMessage::undirect;
      notice.peer = peer.nic->address.bytes;
      notice.attachment = peer.id;
      [[maybe_unused]] const bool sent = send_struct(slot.socket.get(), notice);
      slot.port.raise_notice();
    };
    tell(*one, *other);
    tell(*other, *one);
  }
  direct_pairs_.clear();
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

Result<std::uint32_t> Daemon::apply(const Fault& fault) {
  if (fabric_ == nullptr) {
    start_fabric(star());
  }
  auto applied = fabric_->apply(srd::monotonic_now(), fault);
  if (applied) {
    faults_ = std::max(faults_, *applied + 1);
  }
  return applied;
}

Result<void> Daemon::end_fault(std::uint32_t fault) {
  if (fault >= faults_) {
    return fail(ErrorCode::not_found, "there is no fault " + std::to_string(fault));
  }
  fabric_->end(srd::monotonic_now(), fault);
  return {};
}

}  // namespace weft::emu
