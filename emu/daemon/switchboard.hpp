// Owns moving frames between the processes of one machine: steering, back-pressure, and the reasons
// for dropping.
//
//   process' ring --pump()--> forward() ---------- copy_to_ring() --> process' ring
//                              |    |                    ^
//                              |  enter_fabric()      arrive()
//                              |    |                    |
//                              |    +----> LiveFabric ---+        if the network is modelled
//                              |            ^    |
//                       send_outside()      |  send_by_port()
//                              |            |    v
//                              +--> send_towards_port() -- stage() --> port to the outside
//                                           ^
//                                  pass_between_ports()
//                                           |
//   port --pump_outside()--> take_from_port()     which also submits to LiveFabric, or arrives
//
// Everything runs on the forwarding thread. A frame is copied once on its way, by copy_to_ring() or
// stage(); in the modelled network it stays in the sender's ring (LiveFabric says when it does
// not). Back-pressure: forward() returns false when the receiver's ring, or the NIC, has no room;
// the frame then stays at the front of its sender's ring, which fills up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <vector>

#include "emu/daemon/live_fabric.hpp"
#include "emu/daemon/outside.hpp"
#include "emu/daemon/plant.hpp"
#include "emu/daemon/protocols.hpp"
#include "srd/base/time.hpp"
#include "srd/net/envelope.hpp"

namespace weft::daemon {

enum class FrameDrop : std::uint8_t {
  malformed,      // no UDP frame of a known protocol
  wrong_source,   // its address, attachment or life is not that of the process that sent it
  no_nic,         // no NIC has the destination address
  no_process,     // no process has the destination queue pair
  not_receiving,  // the process does not read its full ring, or too slowly
  corrupted,      // a bit was wrong where no checksum inside the frame covers it
  oversize,       // from outside, and larger than this network's rings carry
  network_full,   // the modelled network holds as much for that NIC as it may
};
inline constexpr std::size_t kFrameDrops = 8;
[[nodiscard]] const char* to_string(FrameDrop drop);

struct SwitchboardCounters {
  std::uint64_t frames = 0;  // forwarded
  std::uint64_t bytes = 0;
  std::array<std::uint64_t, kFrameDrops> dropped{};
};

class Switchboard {
 public:
  // Called when a process begins to send to another one: the moment to give them a direct ring.
  // False: call again with the next frame.
  using OnFlow = std::function<bool(Slot& from, Slot& to)>;

  Switchboard(Plant& plant, OnFlow on_flow);

  // Ports to the outside; they live as long as this.
  void set_outside(Outside* outside) { outside_ = outside; }
  // Forwards up to a burst of frames that came in at that port. Returns how many.
  std::size_t pump_outside(TimePoint now, std::size_t port);
  // A modelled network between the NICs; nullptr: an ideal one.
  void set_fabric(LiveFabric* fabric) { fabric_ = fabric; }
  // A frame leaves the modelled network, or comes from the outside past it.
  void arrive(const FrameDelivery& arrival);

  // Forwards up to a burst of frames from the ring of `from`. Returns how many left it. A slot that
  // broke its ring is marked as doomed.
  std::size_t pump(TimePoint now, Slot& from);
  // Wakes the processes that got frames since the last call, and sends what is staged for ports.
  void notify();
  // A frame waits in some ring for room in another one.
  [[nodiscard]] bool waiting() const { return waiting_; }
  void begin_round() { waiting_ = false; }
  void forget(Slot& slot) { std::erase(to_notify_, &slot); }

  [[nodiscard]] SwitchboardCounters counters() const;

 private:
  static constexpr std::size_t kBurst = 32;
  // How long the full ring of a process may hold up its senders, per ringful that it reads: see
  // ReaderStall.
  static constexpr Duration kPatience = std::chrono::milliseconds{20};
  static constexpr Duration kMaxLoan = std::chrono::milliseconds{5};

  // What the headers of a frame say of both ends.
  struct Steering {
    const srd::net::FlowKey& flow;
    srd::net::Steering packet;

    [[nodiscard]] srd::Address source() const { return flow.source(); }
    [[nodiscard]] srd::Address destination() const { return flow.destination(); }
  };
  struct Head;
  // True: the frame was forwarded or dropped. False: its destination has no room, it must wait.
  bool forward(TimePoint now, Slot& from, std::span<const std::byte> frame,
               const srd::RecordInfo& info);
  // The flow must outlive what is returned.
  [[nodiscard]] static Steering read(const srd::net::FlowKey& flow);
  static void read(srd::net::FlowKey&&) = delete;
  [[nodiscard]] static FrameSource source_of(const Slot& from);
  [[nodiscard]] static bool is_from(const PlantNic& nic, const FrameSource& from,
                                    const Steering& steering);
  [[nodiscard]] bool is_still_from(const FrameDelivery& arrival, const Head& head) const;
  [[nodiscard]] PlantNic* nic_of(Slot& from, const srd::Address& called);
  // Releases what is free of the ring of `from`, and calls loans in where too much is lent.
  void give_room(TimePoint now, Slot& from);
  [[nodiscard]] bool enter_fabric(TimePoint now, Slot& from, const PlantNic& nic,
                                  const Steering& steering, std::span<const std::byte> frame,
                                  const srd::RecordInfo& info);
  // Towards the outside. False: the port has no room, and the frame must wait.
  [[nodiscard]] bool send_outside(TimePoint now, const Slot& from, const Steering& steering,
                                  const Head& head, std::span<const std::byte> frame,
                                  const srd::RecordInfo& info);
  // A frame from the outside. It cannot wait: what finds no room is dropped.
  void take_from_port(TimePoint now, std::size_t port, std::span<const std::byte> frame);
  [[nodiscard]] bool claims_ours(const Outside::Port& port, std::span<const std::byte> frame,
                                 bool steered) const;
  [[nodiscard]] bool is_our_mac(std::span<const std::byte> frame) const;
  void pass_between_ports(TimePoint now, std::size_t port, std::span<const std::byte> frame);
  // False: the frame does not ask for the Ethernet address of a NIC of ours.
  [[nodiscard]] bool answer_neighbour(TimePoint now, std::size_t port,
                                      std::span<const std::byte> frame);
  // A frame on its way to that port.
  [[nodiscard]] FrameDelivery leaving_by(std::size_t port, std::span<const std::byte> frame,
                                         const srd::RecordInfo& info,
                                         const FrameSource& source) const;
  // To one port, by way of the modelled network where both ends are attached to it.
  void send_towards_port(TimePoint now, const PlantNic* from, FrameDelivery leaving,
                         const Head& head);
  void send_by_port(std::size_t port, const FrameDelivery& arrival, const Head& head);
  void stage(std::size_t port, const Head& head, std::span<const std::byte> frame,
             const srd::RecordInfo& info);
  // The slot of the process that has this block of queue pair numbers on that NIC; nullptr: none,
  // or one that is leaving.
  [[nodiscard]] static Slot* slot_of(const PlantNic& nic, std::uint32_t block);
  void steer_management(PlantNic& nic, const Head& head, std::span<const std::byte> frame,
                        const srd::RecordInfo& info);
  void send_for(const PlantNic& nic, std::span<const std::byte> frame);
  void send_to_group(TimePoint now, const Slot& from, const Steering& steering, const Head& head,
                     std::span<const std::byte> frame, const srd::RecordInfo& info);
  void submit_to_members(TimePoint now, const PlantNic& from, const Steering& steering,
                         const FrameSource& source, const Head& head,
                         std::span<const std::byte> frame, const srd::RecordInfo& info);
  void copy_to_members(const PlantNic* nic, const srd::Address& group, const Head& head,
                       std::span<const std::byte> frame, const srd::RecordInfo& info);
  void take_group_from_port(TimePoint now, std::size_t port, const Steering& steering,
                            std::span<const std::byte> frame);
  // Copies a frame into the ring of a process. False: there is no room, and the frame is not taken.
  // With `now` kNever the caller cannot keep it, so the time that it waits is not counted.
  bool copy_to_ring(TimePoint now, Slot& to, const Head& head, std::span<const std::byte> frame,
                    const srd::RecordInfo& info);
  void drop(FrameDrop reason, std::span<const std::byte> frame);

  Plant& plant_;
  OnFlow on_flow_;
  std::set<srd::net::MacAddress> our_macs_;
  LiveFabric* fabric_ = nullptr;
  Outside* outside_ = nullptr;
  std::vector<Slot*> to_notify_;
  std::vector<std::byte> scratch_;  // a frame on its way to the outside
  bool waiting_ = false;
  std::uint64_t bad_frames_ = 0;  // dropped for what their senders wrote
  SwitchboardCounters counters_;
};

}  // namespace weft::daemon
