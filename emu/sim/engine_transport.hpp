// Owns a simulated host's use of the real transport engine: a flow is an RDMA write with immediate
// data.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "emu/sim/transport.hpp"
#include "srd/engine/engine.hpp"

namespace weft::sim {

// Flows are posted in the order in which they are handed over: a flow that does not fit into the
// engine holds up those behind it. The last write of a flow carries the flow's number as its
// immediate data, which tells the receiver that the flow has arrived. A flow beyond kMaxTransfer (1
// GiB) is several writes. SRD does not order them, so the last one is posted when all others have
// completed.
class EngineTransport final : public HostTransport {
 public:
  // The configuration must have passed validate(). This class sets its attachment and derives its
  // seed from the port, so that hosts given one seed draw differently. `keys` has every host's
  // region key, by port, and belongs to all hosts together: the constructor adds this host's key,
  // and no host may start a flow before all of them have been constructed.
  using Keys = std::vector<srd::RegionKey>;
  EngineTransport(fabric::PortId self, srd::EngineConfig config, std::shared_ptr<Keys> keys);

  [[nodiscard]] srd::Machine& machine() override { return engine_; }
  void start(TimePoint now, const FlowStart& flow) override;
  [[nodiscard]] std::size_t poll(std::span<FlowEvent> events) override;
  [[nodiscard]] bool is_control(const srd::TxPacket& packet) const override {
    return packet.payload_size() == 0;
  }
  [[nodiscard]] bool knows_trimming() const override { return true; }
  [[nodiscard]] bool checks_packets() const override { return checks_packets_; }
  [[nodiscard]] TransportCounters counters() const override;
  [[nodiscard]] srd::Engine& engine() { return engine_; }
  void prefetch(fabric::PortId from, unsigned step) const override;

 private:
  // A flow of which some bytes have not been posted: one write takes at most kMaxTransfer, and the
  // engine may have no work request left.
  struct Rest {
    FlowStart flow;
    Bytes posted = 0;
  };
  // What has become of the writes of a flow that go before its last one.
  struct Pieces {
    std::uint32_t in_engine = 0;  // posted, and not completed
    bool failed = false;          // one of them did
    std::optional<Rest> last;     // the last write, while it waits for those in the engine
  };
  // Posts as much as the engine takes. When all of the flow is posted, or only its last write waits
  // for others, removes it from waiting_: `rest` must be the first one there, and is gone after the
  // call.
  void post(Rest& rest);

  bool checks_packets_;
  srd::Engine engine_;
  std::shared_ptr<Keys> keys_;
  std::deque<Rest> waiting_;
  // Of flows of more than one write, by flow: all writes but the last.
  std::unordered_map<std::uint32_t, Pieces> pieces_;
};

}  // namespace weft::sim
