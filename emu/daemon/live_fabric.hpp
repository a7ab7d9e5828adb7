// Owns the modelled network in real time: frames of processes inside, delivered when the model says
// so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "emu/fabric/fabric.hpp"
#include "emu/fabric/topology.hpp"
#include "srd/base/time.hpp"
#include "srd/io/packet_io.hpp"
#include "srd/io/spsc_ring.hpp"

namespace weft::emu {

// A frame that has come through, perhaps changed. Empty if a bit got wrong that no checksum inside
// would show: on a wire Ethernet's own would have.
struct Arrival {
  PortId port = 0;
  std::uint32_t block = 0;  // which process on that NIC
  srd::RecordInfo record;   // in which it came, or will go on
  bool management = false;
  std::int16_t outside = -1;  // number of the port to the outside that it is for, if not negative
  std::span<const std::byte> frame;
};

class Capture;
class Loans;

// Whose memory a frame is in, for as long as it is inside: it need not be copied.
struct Lender {
  Loans* loans = nullptr;
  std::uint64_t position = 0;  // of the frame in the ring
  TimePoint now{};
};

class LiveFabric {
 public:
  struct Options {
    Topology topology;
    std::uint64_t seed = 1;
    double dilation = 1;  // this many seconds here are one second in the network
    std::size_t max_frame = 0;
  };
  using Deliver = std::function<void(const Arrival&)>;

  // The topology must be valid.
  LiveFabric(Options options, TimePoint now, Deliver deliver);

  // False: the NIC has so much to send already that the frame has to wait outside.
  [[nodiscard]] bool submit(TimePoint now, PortId from, const Arrival& to,
                            std::span<const std::byte> frame, const Lender& lender = {});
  // Copies the oldest frame that is on loan from there, or all of them: the lender needs its room.
  void call_in(Loans& loans);
  void call_in_all(Loans& loans);
  // Delivers what is due. Returns how many frames came out or were lost.
  std::size_t advance(TimePoint now);
  // When advance() is worth calling again; kNever while nothing is inside.
  [[nodiscard]] TimePoint next_event();

  [[nodiscard]] Result<std::uint32_t> apply(TimePoint now, const Fault& fault);
  void end(TimePoint now, std::uint32_t fault);

  // Writes what passes the links that it watches; nullptr: nothing any more. The capture must
  // outlive its use here.
  void set_capture(Capture* capture);
  [[nodiscard]] Capture* capture() { return capture_; }

  // What a process on that NIC needs to know of it, in real time.
  [[nodiscard]] srd::NetworkModel seen_from(PortId port) const;

  [[nodiscard]] const Fabric& fabric() const { return fabric_; }
  [[nodiscard]] const Topology& topology() const { return *topology_; }
  [[nodiscard]] std::size_t frames_inside() const { return used_; }
  // Picoseconds of the network's own time since it began.
  [[nodiscard]] Picos network_time(TimePoint now) const { return model_time(now); }

 private:
  // A frame: in its lender's ring, or in a buffer of one size that is used again and again.
  struct Stored {
    std::unique_ptr<std::byte[]> buffer;  // made when it is needed first
    std::byte* bytes = nullptr;
    std::uint32_t size = 0;
    Arrival to;
    Loans* lender = nullptr;
    std::uint64_t loan = 0;
    Picos entered = 0;  // when its NIC began to send it
  };
  struct Sink;

  [[nodiscard]] Picos model_time(TimePoint now) const;
  [[nodiscard]] std::uint32_t store(const Arrival& to, std::span<const std::byte> frame,
                                    const Lender& lender = {});
  void keep(Stored& stored, std::span<const std::byte> frame);
  void take_home(Stored& stored);
  [[nodiscard]] std::uint32_t copy(std::uint32_t handle);
  void release(std::uint32_t handle);
  void deliver(const Event& event);
  void record(Picos when, const Event& event, LinkId link, const char* dropped);

  std::unique_ptr<const Topology> topology_;
  Fabric fabric_;
  double dilation_;
  std::size_t max_frame_;
  TimePoint start_;
  Deliver deliver_;
  Capture* capture_ = nullptr;
  std::vector<std::byte> scratch_;
  Rng rng_;
  std::vector<Stored> stored_;
  std::vector<std::uint32_t> free_;
  std::size_t used_ = 0;
  std::size_t moved_ = 0;
};

}  // namespace weft::emu
