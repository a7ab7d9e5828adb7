// Owns the modelled network in real time: holds frames of processes, and delivers each when the
// model says that it arrives.
//
// The model (emu/fabric) knows a frame by a handle, its size and its flow; the bytes are here, in
// FramesInside, or still in the sender's ring (Loans). submit() puts a frame in, advance() lets the
// model run until now and calls `deliver` for each frame that comes out, next_event() says when
// that is worth while again. All of it runs on the forwarding thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "emu/daemon/frame_delivery.hpp"
#include "emu/daemon/frames_inside.hpp"
#include "emu/daemon/model_clock.hpp"
#include "emu/fabric/fabric.hpp"
#include "emu/fabric/topology.hpp"
#include "srd/base/time.hpp"
#include "srd/net/flow_key.hpp"

namespace weft::daemon {

class Capture;

// In whose ring a frame lies. Given to submit(), the frame stays there while it is inside, and is
// not copied: unless it stays too long, is cut or damaged, or the ring is half full (take_home()).
struct Lender {
  Loans* loans = nullptr;
  std::uint64_t position = 0;  // of the frame in the ring
  TimePoint now{};
};

class LiveFabric {
 public:
  struct Options {
    fabric::Topology topology;
    std::uint64_t seed = 1;
    double dilation = 1;  // this many seconds here are one second in the network
    std::size_t max_frame = 0;
    // Of the frames inside: what a network of 100 Gb/s holds in 40 ms.
    std::size_t max_memory = std::size_t{512} << 20;
  };
  using Deliver = std::function<void(const FrameDelivery&)>;

  // The topology must be valid.
  LiveFabric(Options options, TimePoint now, Deliver deliver);

  // False: the NIC has enough to send (kNicQueue) and the frame has to wait outside. A frame for
  // which there is no memory is lost, and counted in refused().
  [[nodiscard]] bool submit(TimePoint now, fabric::PortId from, const FrameDelivery& to,
                            std::span<const std::byte> frame, const Lender& lender = {});
  // Where the headers were read before, perhaps in a copy, which need not outlive the call.
  [[nodiscard]] bool submit(TimePoint now, fabric::PortId from, const FrameDelivery& to,
                            const srd::net::FlowKey& flow, std::span<const std::byte> frame,
                            const Lender& lender = {});
  // Copies the oldest frame that is on loan from there: the lender needs its room.
  void call_in(Loans& loans);
  // Delivers what is due. Returns how many frames came out or were lost.
  std::size_t advance(TimePoint now);
  // When advance() is worth calling again; kNever while nothing is inside.
  [[nodiscard]] TimePoint next_event();

  [[nodiscard]] Result<std::uint32_t> apply(TimePoint now, const fabric::Fault& fault);
  void end(TimePoint now, std::uint32_t fault);

  // Frames that pass the links that the capture watches are written to it; nullptr ends that. The
  // capture must outlive its use here.
  void set_capture(Capture* capture);
  [[nodiscard]] Capture* capture() { return capture_; }

  // What the transport of a process on that NIC needs to know of the network, in real time.
  [[nodiscard]] srd::NetworkModel seen_from(fabric::PortId port) const;

  [[nodiscard]] const fabric::Fabric& fabric() const { return fabric_; }
  [[nodiscard]] const fabric::Topology& topology() const { return *topology_; }
  [[nodiscard]] std::size_t frames_inside() const { return inside_.size(); }
  // Bytes reserved for them, and how many frames found no room.
  [[nodiscard]] std::size_t memory() const { return inside_.memory() + fabric_.memory(); }
  [[nodiscard]] std::uint64_t refused() const { return inside_.refused(); }
  // Of the network's own time, since it began.
  [[nodiscard]] Duration network_time(TimePoint now) const {
    return clock_.since_start(clock_.at(now));
  }

 private:
  struct Sink;
  // From this count on, it is set back as soon as nothing is inside.
  static constexpr fabric::Picos kLongRun = ModelClock::kLatest / 2;

  // The network's count of time at `now`. Set back when needed, before it could overflow.
  [[nodiscard]] fabric::Picos count_at(TimePoint now) {
    const fabric::Picos count = clock_.at(now);
    return count < kLongRun ? count : count_anew(now);
  }
  [[nodiscard]] fabric::Picos count_anew(TimePoint now);
  // No earlier than what the network has seen already.
  [[nodiscard]] fabric::Picos count_from(TimePoint now);
  // kNone: there is no room.
  [[nodiscard]] std::uint32_t store(fabric::PortId from, const FrameDelivery& to,
                                    std::span<const std::byte> frame, const Lender& lender = {});
  // Ends a loan, if the frame is on loan; without memory for the copy the frame is `gone`.
  void take_home(Stored& stored);
  // A second frame with the same bytes, or kNone.
  [[nodiscard]] std::uint32_t copy(std::uint32_t handle);
  // `stored` is inside_[handle].
  void release(std::uint32_t handle, Stored& stored);
  // The bytes with marks, cuts and damage; empty if the damage is one that a wire would have turned
  // into a loss, or what was to be cut has no whole headers.
  [[nodiscard]] std::span<std::byte> as_it_arrives(Stored& stored, unsigned flags);
  void deliver(const fabric::CalendarEvent& event);
  void record(fabric::Picos when, const fabric::CalendarEvent& event, fabric::LinkId link,
              const char* dropped);

  std::unique_ptr<const fabric::Topology> topology_;
  fabric::Fabric fabric_;
  double dilation_;
  std::size_t max_frame_;
  bool trims_ = false;  // some link does
  ModelClock clock_;
  Deliver deliver_;
  Capture* capture_ = nullptr;
  std::vector<std::byte> scratch_;
  Rng rng_;
  FramesInside inside_;
  // Frames that came out or were lost in the present advance().
  std::size_t moved_ = 0;
};

}  // namespace weft::daemon
