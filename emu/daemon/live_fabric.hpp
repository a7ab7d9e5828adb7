// Owns the modelled network in real time: frames of processes inside, delivered when the model says
// so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "emu/daemon/arrival.hpp"
#include "emu/daemon/frames_inside.hpp"
#include "emu/daemon/model_clock.hpp"
#include "emu/fabric/fabric.hpp"
#include "emu/fabric/topology.hpp"
#include "srd/base/time.hpp"

namespace weft::daemon {

class Capture;

// Whose memory a frame is in, for as long as it is inside: it need not be copied.
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
  using Deliver = std::function<void(const Arrival&)>;

  // The topology must be valid.
  LiveFabric(Options options, TimePoint now, Deliver deliver);

  // False: the NIC has so much to send already that the frame has to wait outside. A frame for
  // which there is no memory is lost, and counted in refused().
  [[nodiscard]] bool submit(TimePoint now, fabric::PortId from, const Arrival& to,
                            std::span<const std::byte> frame, const Lender& lender = {});
  // Copies the oldest frame that is on loan from there: the lender needs its room.
  void call_in(Loans& loans);
  // Delivers what is due. Returns how many frames came out or were lost.
  std::size_t advance(TimePoint now);
  // When advance() is worth calling again; kNever while nothing is inside.
  [[nodiscard]] TimePoint next_event();

  [[nodiscard]] Result<std::uint32_t> apply(TimePoint now, const fabric::Fault& fault);
  void end(TimePoint now, std::uint32_t fault);

  // Writes what passes the links that it watches; nullptr: nothing any more. The capture must
  // outlive its use here.
  void set_capture(Capture* capture);
  [[nodiscard]] Capture* capture() { return capture_; }

  // What a process on that NIC needs to know of it, in real time.
  [[nodiscard]] srd::NetworkModel seen_from(fabric::PortId port) const;

  [[nodiscard]] const fabric::Fabric& fabric() const { return fabric_; }
  [[nodiscard]] const fabric::Topology& topology() const { return *topology_; }
  [[nodiscard]] std::size_t frames_inside() const { return inside_.size(); }
  // Reserved for them, and how many found no room there.
  [[nodiscard]] std::size_t memory() const { return inside_.memory() + fabric_.memory(); }
  [[nodiscard]] std::uint64_t refused() const { return inside_.refused(); }
  // Of the network's own time, since it began.
  [[nodiscard]] Duration network_time(TimePoint now) const {
    return clock_.since_start(clock_.at(now));
  }

 private:
  struct Sink;
  // From here on it is set back at the first moment when nothing is inside.
  static constexpr fabric::Picos kLongRun = ModelClock::kLatest / 2;

  // The network's count of time, which is set back in time.
  [[nodiscard]] fabric::Picos count_at(TimePoint now) {
    const fabric::Picos count = clock_.at(now);
    return count < kLongRun ? count : count_anew(now);
  }
  [[nodiscard]] fabric::Picos count_anew(TimePoint now);
  // No earlier than what the network has seen already.
  [[nodiscard]] fabric::Picos count_from(TimePoint now);
  // kNone: there is no room.
  [[nodiscard]] std::uint32_t store(fabric::PortId from, const Arrival& to,
                                    std::span<const std::byte> frame, const Lender& lender = {});
  void take_home(Stored& stored);
  [[nodiscard]] std::uint32_t copy(std::uint32_t handle);
  void release(std::uint32_t handle);
  [[nodiscard]] std::span<std::byte> as_it_arrives(Stored& stored, unsigned flags);
  void deliver(const fabric::Event& event);
  void record(fabric::Picos when, const fabric::Event& event, fabric::LinkId link,
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
  std::size_t moved_ = 0;
};

}  // namespace weft::daemon
