// Owns the forwarding thread: rounds that move frames, and sleeping when there are none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emu/daemon/event_wait.hpp"
#include "emu/daemon/live_fabric.hpp"
#include "emu/daemon/notices.hpp"
#include "emu/daemon/outside.hpp"
#include "emu/daemon/plant.hpp"
#include "emu/daemon/round_calls.hpp"
#include "emu/daemon/switchboard.hpp"
#include "srd/base/result.hpp"
#include "srd/base/time.hpp"

namespace weft::daemon {

struct ForwarderCounters {
  std::uint64_t rounds = 0;
  std::uint64_t calls = 0;  // of the control thread, executed between two of them
  std::uint64_t sleeps = 0;
};

// Here nobody is waited for: no connection is accepted, nothing is parsed, and of each process,
// port and caller a bounded share is served in a round.
class Forwarder {
 public:
  Forwarder(Plant& plant, std::size_t max_frame);

  [[nodiscard]] Result<void> open();
  // Forwards until end(), on the calling thread.
  void run();

  // --- The control thread.
  void end();
  [[nodiscard]] RoundCalls& calls() { return calls_; }
  [[nodiscard]] Notices& notices() { return notices_; }

  // --- The forwarding thread: what calls are made of.
  // False: its bell cannot be watched, and it was not added.
  [[nodiscard]] bool add(std::unique_ptr<Slot>& slot);
  // Takes what is left in its ring, and then gives notice (Notice::Kind::drained).
  void retire(Slot& slot);
  [[nodiscard]] std::unique_ptr<Slot> take(Slot& slot);
  // The number of the port.
  [[nodiscard]] Result<std::size_t> add_port(std::string name, std::unique_ptr<srd::FrameIo> io,
                                             const Nic* nic);
  [[nodiscard]] std::unique_ptr<srd::FrameIo> remove_port(std::size_t port);
  void set_fabric(std::unique_ptr<LiveFabric> fabric);

  [[nodiscard]] Plant& plant() { return plant_; }
  [[nodiscard]] LiveFabric* fabric() { return fabric_.get(); }
  [[nodiscard]] Switchboard& switchboard() { return switchboard_; }
  [[nodiscard]] const Outside& outside() const { return outside_; }
  [[nodiscard]] const ForwarderCounters& counters() const { return counters_; }

 private:
  // What a descriptor that woke us belongs to.
  struct Watched {
    enum class Source : std::uint8_t { ours, bell, outside } source{};
    Slot* slot = nullptr;
  };

  [[nodiscard]] std::size_t round(TimePoint now);
  [[nodiscard]] bool watch(int fd, const Watched& watched, bool edges);
  void unwatch(int fd);
  void sleep(std::int64_t wait);
  [[nodiscard]] std::int64_t time_to_sleep(TimePoint now);
  [[nodiscard]] bool fall_asleep();
  void wake_up();
  bool consider_direct(Slot& from, Slot& to);
  // Work that is not finished: its slot broke its ring, or is ending.
  [[nodiscard]] bool look_after(Slot& slot, std::size_t pumped);
  void watch_links();

  Plant& plant_;
  Switchboard switchboard_;
  Outside outside_;
  std::unique_ptr<LiveFabric> fabric_;
  std::uint64_t outages_ = 0;  // of the network, as the control thread knows
  RoundCalls calls_;
  Notices notices_;
  ForwarderCounters counters_;
  EventWait wait_;
  std::unordered_map<int, Watched> watched_;
  Duration blind_sleep_{};  // how long the last sleeps without a bell were
  bool end_ = false;
};

}  // namespace weft::daemon
