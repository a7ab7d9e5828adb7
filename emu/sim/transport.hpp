// Owns what the simulation asks of a host's transport: a Machine, and a way to hand it flows.
#pragma once

#include <cstdint>
#include <span>

#include "emu/fabric/topology.hpp"
#include "srd/net/machine.hpp"

namespace weft::sim {

// A host's address is its port's number; the first bytes make it a unique local IPv6 address.
[[nodiscard]] srd::Address address_of(fabric::PortId port);
// The port, or kNone when it is not one of ours.
[[nodiscard]] inline fabric::PortId port_of(const srd::Address& address) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(address.bytes[i]); };
  return byte(0) != 0xFD ? fabric::kNone
                         : byte(12) << 24 | byte(13) << 16 | byte(14) << 8 | byte(15);
}

// Zeros that stand for the payload of bulk traffic, which no host reads: one page serves all
// frames. At most 65536 bytes.
[[nodiscard]] std::span<const std::byte> phantom_payload(std::size_t length);

struct FlowStart {
  std::uint32_t flow = 0;  // index in the traffic matrix
  fabric::PortId destination = 0;
  Bytes bytes = 0;
};

// `received` is told at the receiver, when it has everything; `sent` and `failed` end the flow at
// its sender.
struct FlowEvent {
  enum class Kind : std::uint8_t { sent, received, failed };
  std::uint32_t flow = 0;
  Kind kind = Kind::sent;
};

// Of all flows of a host; packets are data packets.
struct TransportCounters {
  std::uint64_t new_packets = 0;
  std::uint64_t retransmitted = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t paths_abandoned = 0;
};

// What one host runs, for all its flows. The simulation calls it and its machine from one thread,
// with a time that never goes back.
class HostTransport {
 public:
  virtual ~HostTransport() = default;

  // The same one each time; it lives as long as the transport.
  [[nodiscard]] virtual srd::Machine& machine() = 0;
  // Never refuses a flow; frames follow when the machine is asked for them.
  virtual void start(TimePoint now, const FlowStart& flow) = 0;
  // What has ended since the last call; at most events.size() at a time.
  [[nodiscard]] virtual std::size_t poll(std::span<FlowEvent> events) = 0;
  // True if the frame goes in the queue for control frames, ahead of data: acknowledgements and the
  // like.
  [[nodiscard]] virtual bool is_control(const srd::TxPacket& packet) const = 0;
  // True if its packets carry a checksum: the simulation then delivers damaged packets to it. For
  // the others it drops them, as a NIC does.
  [[nodiscard]] virtual bool checks_packets() const { return false; }
  // True if its receiver makes use of data that was cut to the header.
  [[nodiscard]] virtual bool knows_trimming() const { return false; }
  [[nodiscard]] virtual TransportCounters counters() const = 0;
  // A hint that this host will be served soon, with a packet of port `from` or (kNone) to send.
  // Called with step 0, 1, 2 ...: each step may follow pointers that the one before has fetched.
  virtual void prefetch(fabric::PortId /*from*/, unsigned /*step*/) const {}
};

}  // namespace weft::sim
