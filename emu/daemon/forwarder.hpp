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

// One round: a call of the control thread, if one waits; a burst from the ring of every slot; a
// burst from every port to the outside; what is due in the modelled network; bells and notices.
// Nothing here waits for anybody: no connection is accepted, no text is parsed, and each slot, port
// and caller gets a bounded share. When a round finds nothing the thread yields, and then sleeps on
// `wait_` until a bell, a port, a call, or a time.
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
  // Nothing is delivered to the slot any more. The frames left in its ring are still forwarded;
  // then comes a Notice::Kind::drained, and take() is allowed.
  void retire(Slot& slot);
  [[nodiscard]] std::unique_ptr<Slot> take(Slot& slot);
  // The number of the port.
  [[nodiscard]] Result<std::size_t> add_port(std::string name, std::unique_ptr<srd::FrameIo> io,
                                             const PlantNic* nic);
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

  // Returns how much it moved; 0: nothing.
  [[nodiscard]] std::size_t round(TimePoint now);
  [[nodiscard]] bool watch(int fd, const Watched& watched, bool edges);
  // Does nothing for a descriptor that is not watched.
  void unwatch(int fd);
  void sleep(std::int64_t wait);
  // In nanoseconds; -1: until something happens.
  [[nodiscard]] std::int64_t time_to_sleep(TimePoint now);
  // False: there is work, and everything is awake again.
  [[nodiscard]] bool fall_asleep();
  void wake_up();
  bool consider_direct(Slot& from, Slot& to);
  // For a slot that broke its ring or is ending. True: that made progress.
  [[nodiscard]] bool look_after(Slot& slot, std::size_t pumped);
  // Tells the control thread which NICs' links have changed since the last time.
  void watch_links();

  Plant& plant_;
  Switchboard switchboard_;
  Outside outside_;
  std::unique_ptr<LiveFabric> fabric_;
  std::uint64_t outages_ = 0;  // Fabric::outages() of which the control thread has been told
  RoundCalls calls_;
  Notices notices_;
  ForwarderCounters counters_;
  EventWait wait_;
  std::unordered_map<int, Watched> watched_;
  Duration blind_sleep_{};  // length of the last sleep with a blind port; doubles while it is quiet
  bool end_ = false;
};

}  // namespace weft::daemon
