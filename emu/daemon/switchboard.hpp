// Owns moving frames between the processes of one machine: steering, back-pressure, and what is
// dropped why.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "emu/daemon/live_fabric.hpp"
#include "emu/daemon/outside.hpp"
#include "emu/daemon/plant.hpp"
#include "srd/base/time.hpp"

namespace weft::emu {

enum class FrameDrop : std::uint8_t {
  malformed,      // no UDP frame of a transport that we know
  wrong_source,   // it does not come from the NIC of the process that sent it
  no_nic,         // nobody has the destination address
  no_process,     // nobody has the destination queue pair
  not_receiving,  // the process has not read its full ring for too long
  corrupted,      // a bit was wrong and nothing inside the frame would have shown it
  oversize,       // from outside, and larger than this network's rings carry
};
inline constexpr std::size_t kFrameDrops = 7;
[[nodiscard]] const char* to_string(FrameDrop drop);

struct SwitchboardCounters {
  std::uint64_t frames = 0;  // forwarded
  std::uint64_t bytes = 0;
  std::array<std::uint64_t, kFrameDrops> dropped{};
};

class Switchboard {
 public:
  // Called when frames of one process begin to go to another one: the moment to give them a direct
  // ring.
  using OnFlow = std::function<void(Slot& from, Slot& to)>;

  Switchboard(Plant& plant, OnFlow on_flow) : plant_(plant), on_flow_(std::move(on_flow)) {}

  // Ports to the outside; they live as long as this.
  void set_outside(Outside* outside) { outside_ = outside; }
  // Forwards up to a burst of what came in there. Returns how many frames.
  std::size_t pump_outside(TimePoint now, std::size_t port);
  // A modelled network between the NICs; nullptr: an ideal one.
  void set_fabric(LiveFabric* fabric) { fabric_ = fabric; }
  // A frame has come through it.
  void arrive(const Arrival& arrival);

  // Forwards up to a burst of what `from` has sent. Returns how many frames left its ring. A slot
  // that broke its ring is marked as doomed.
  std::size_t pump(TimePoint now, Slot& from);
  // Rings the doorbells of those who got something since the last call.
  void notify();
  // A frame waits in some ring for room in another one.
  [[nodiscard]] bool waiting() const { return waiting_; }
  void begin_round() { waiting_ = false; }
  void forget(Slot& slot) { std::erase(to_notify_, &slot); }

  [[nodiscard]] const SwitchboardCounters& counters() const { return counters_; }

 private:
  static constexpr std::size_t kBurst = 32;
  static constexpr Duration kPatience = std::chrono::milliseconds{20};
  static constexpr Duration kLongestLoan = std::chrono::milliseconds{5};

  struct Steering {
    srd::Address source;
    srd::Address destination;
    std::uint32_t block = 0;  // which process
    bool management = false;  // queue pair 1: for whoever listens on that NIC
    bool is_transport = false;
  };
  // True: the frame is dealt with. False: its destination has no room, it must wait.
  bool forward(TimePoint now, Slot& from, std::span<const std::byte> frame,
               const srd::RecordInfo& info);
  [[nodiscard]] static bool read(std::span<const std::byte> frame, Steering& steering);
  [[nodiscard]] const Nic* nic_of(Slot& from, const srd::Address& address);
  void give_room(TimePoint now, Slot& from);
  [[nodiscard]] bool enter_fabric(TimePoint now, Slot& from, const Steering& steering,
                                  std::span<const std::byte> frame, const srd::RecordInfo& info);
  [[nodiscard]] bool leave(TimePoint now, const Slot& from, const Steering& steering,
                           std::span<const std::byte> frame, const srd::RecordInfo& info);
  void enter(TimePoint now, std::size_t port, std::span<const std::byte> frame);
  void relay(TimePoint now, std::size_t port, std::span<const std::byte> frame);
  void hand_over(TimePoint now, const Nic* from, std::size_t port, std::span<const std::byte> frame,
                 const srd::RecordInfo& info);
  [[nodiscard]] Slot* target_of(Slot& from, const Steering& steering);
  // `from` does not hear itself; nullptr: somebody behind the network.
  void deliver_management(const Nic& nic, const Slot* from, std::span<const std::byte> frame,
                          const srd::RecordInfo& info);
  bool deliver(TimePoint now, Slot& to, std::span<const std::byte> frame,
               const srd::RecordInfo& info);
  void drop(FrameDrop reason, std::span<const std::byte> frame);

  Plant& plant_;
  OnFlow on_flow_;
  LiveFabric* fabric_ = nullptr;
  Outside* outside_ = nullptr;
  std::vector<Slot*> to_notify_;
  bool waiting_ = false;
  SwitchboardCounters counters_;
};

}  // namespace weft::emu
