// Owns weftd: its sockets, its one loop, and the processes that come and go.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emu/daemon/capture.hpp"
#include "emu/daemon/event_log.hpp"
#include "emu/daemon/impairments.hpp"
#include "emu/daemon/live_fabric.hpp"
#include "emu/daemon/outside.hpp"
#include "emu/daemon/plant.hpp"
#include "emu/daemon/seqpacket.hpp"
#include "emu/daemon/switchboard.hpp"
#include "srd/base/result.hpp"
#include "srd/run/idle.hpp"

namespace weft::emu {

struct DaemonOptions {
  std::string directory;           // holds attach.sock, control.sock and metrics.sock
  std::string event_log;           // a file; empty: none
  std::uint16_t metrics_port = 0;  // of the loopback address, for whoever may connect; 0: none
  Plant::Options plant;
  std::size_t mtu = 4096 + 64;  // of transport packets: payload and header
  // More than a core's second-level cache holds: otherwise the writer waits for each line to come
  // back from the reader's core, and bandwidth is a third.
  std::size_t ring_bytes = std::size_t{1} << 21;
  bool direct_rings = true;
  std::optional<Topology>
      topology;  // must be valid; its hosts count, with addresses as `plant` says
  std::uint64_t seed = 1;
  double dilation = 1;               // seconds here per second in the network
  std::vector<std::string> ports{};  // to the outside, as parse_outside() takes them
};

class Daemon {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Daemon>> create(const DaemonOptions& options);

  // Until stop() or SIGINT/SIGTERM, which it takes over.
  [[nodiscard]] Result<void> run();
  void stop() { stop_ = true; }

  [[nodiscard]] const DaemonOptions& options() const { return options_; }
  [[nodiscard]] const Plant& plant() const { return plant_; }
  [[nodiscard]] const Switchboard& switchboard() const { return switchboard_; }
  [[nodiscard]] const Outside& outside() const { return outside_; }
  [[nodiscard]] std::size_t direct_pairs() const { return direct_pairs_.size(); }
  // Null while the network is ideal.
  [[nodiscard]] const LiveFabric* fabric() const { return fabric_.get(); }
  // Troubles the network from now on. An ideal one becomes a star of fast links first: h1->fabric,
  // ...
  [[nodiscard]] Result<std::uint32_t> apply(const Fault& fault);
  [[nodiscard]] Result<void> end_fault(std::uint32_t fault);
  // Links with names: of the modelled network, or of the star that an ideal one would become.
  [[nodiscard]] const Topology& topology_to_be();
  [[nodiscard]] Impairments& impairments() { return impairments_; }
  // One at a time.
  [[nodiscard]] Result<void> start_capture(const CaptureOptions& options);
  [[nodiscard]] Result<void> stop_capture();
  [[nodiscard]] const Capture* capture() const { return capture_.get(); }
  [[nodiscard]] EventLog& events() { return events_; }
  [[nodiscard]] TimePoint started() const { return started_; }

 private:
  enum class Source : std::uint8_t {
    attach,
    outside,
    control,
    metrics,
    doorbell,
    signal,
    knocking,
    process,
    end,
    talk
  };
  struct Watched {
    Source source{};
    Slot* slot = nullptr;
  };
  struct Talk {  // a connection to the control socket, or for metrics
    srd::UniqueFd socket;
    std::string input;
    std::string output;  // what the other side has not taken yet
    bool http = false;
    bool stuck = false;    // waits for room for it
    bool closing = false;  // once all is sent
    TimePoint since{};     // when something was read or taken last
  };
  struct Newcomer {
    srd::UniqueFd socket;
    TimePoint since{};
  };

  static constexpr Duration kIdleInterval = std::chrono::seconds{1};

  Daemon(const DaemonOptions& options, Plant plant);

  [[nodiscard]] Result<void> lock_directory();
  [[nodiscard]] Result<void> open_sockets();
  [[nodiscard]] Result<void> open_ports();
  [[nodiscard]] Result<void> add_port(const std::string& name, std::unique_ptr<srd::FrameIo> io,
                                      const Nic* nic);
  [[nodiscard]] bool watch(int fd, Source source, Slot* slot = nullptr, bool edge = false);
  void unwatch(int fd);
  // Handles what is ready; waits up to so many nanoseconds for something (-1: for ever).
  void serve_sockets(std::int64_t wait);
  void handle(int fd, const Watched& watched);
  [[nodiscard]] std::size_t forward(TimePoint now);
  [[nodiscard]] std::int64_t time_to_sleep(TimePoint now);
  [[nodiscard]] bool fall_asleep();
  void wake_up();

  // Later for every later process, also across restarts of weftd: tenths of seconds of the
  // calendar.
  [[nodiscard]] static std::uint32_t life_of_now();
  void accept_processes();
  void hear_newcomer(int fd);
  void answer_attach(srd::UniqueFd socket, const struct AttachRequest& request);
  void answer_tap(int fd, const struct TapRequest& request, srd::UniqueFd device);
  void answer_describe(int fd, const struct DescribeRequest& request);
  void hear_process(Slot& slot);
  [[nodiscard]] Result<void> furnish(Slot& slot, const struct AttachRequest& request);
  void detach(Slot& slot);
  void detach_doomed();
  void doom(Slot& slot);
  void take_ring_back(Slot& from, const Slot& peer);
  void tell_of_link(Slot& slot);
  void watch_links();
  void consider_direct(Slot& from, Slot& to);

  void model();
  void start_fabric(Topology topology);
  [[nodiscard]] Topology star() const;

  [[nodiscard]] Result<void> open_metrics();
  void accept_talks(int listener, bool http);
  void hear_talk(int fd);
  [[nodiscard]] bool answer_talk(Talk& talk);
  [[nodiscard]] bool send_output(Talk& talk);
  // Closes what has said, or taken, nothing for too long.
  void end_idle(TimePoint now);
  // A connection of that listener; without a descriptor left it is told so and closed.
  [[nodiscard]] srd::UniqueFd accept_one(int listener, const std::function<void(int)>& refuse);

  DaemonOptions options_;
  Plant plant_;
  Switchboard switchboard_;
  Outside outside_;
  std::unique_ptr<LiveFabric> fabric_;
  std::optional<Topology> star_;  // while the network is ideal and somebody asks for its links
  std::uint32_t faults_ = 0;
  std::uint64_t occurrences_ = 0;
  std::uint64_t outages_ = 0;  // of the network, as the NICs' processes know
  Impairments impairments_;
  std::unique_ptr<Capture> capture_;
  EventLog events_;
  srd::UniqueFd lock_;   // whoever has it is the weftd of this directory
  srd::UniqueFd spare_;  // given up for a moment to tell somebody that there are no others
  TimePoint next_end_idle_ = kNever;
  srd::UniqueFd epoll_;
  srd::UniqueFd attach_socket_;
  srd::UniqueFd control_socket_;
  srd::UniqueFd metrics_socket_;
  srd::UniqueFd metrics_listener_;
  srd::UniqueFd doorbell_;
  srd::UniqueFd signals_;
  std::unordered_map<int, Watched> watched_;
  std::unordered_map<int, Newcomer> newcomers_;  // connected, not attached
  std::unordered_map<int, Talk> talks_;
  std::set<std::pair<Slot*, Slot*>> direct_pairs_;  // smaller pointer first
  std::vector<Slot*> doomed_;
  bool stop_ = false;
  srd::Life first_life_{life_of_now() + 1};
  Duration blind_sleep_{};  // how long the last sleeps without a bell were
  TimePoint started_;
};

}  // namespace weft::emu
