// Owns a network in virtual time between engines, with faults by probability and faults by script.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "emu/world/digest.hpp"
#include "emu/world/packet_kind.hpp"
#include "srd/base/rng.hpp"
#include "srd/base/time.hpp"
#include "srd/base/units.hpp"
#include "srd/net/machine.hpp"

namespace weft::world {

// How packets travel from any host to any other. May be changed at any time; it counts for packets
// that are sent from then on, the port's limits for those that arrive. Packets of one path stay in
// order unless `reorder` or `duplicate` hits. Probabilities are per packet.
struct LinkModel {
  Duration latency = std::chrono::microseconds{5};
  Duration path_skew{};  // path p is p times this slower: unequal lengths
  Duration jitter{};     // most that one packet may be late, without leaving the order of its path
  double loss = 0;
  double burst = 0;  // probability that a burst of losses begins with this packet
  std::uint32_t burst_length = 8;
  double duplicate = 0;
  double reorder = 0;  // probability of leaving the order of the path by up to `reorder_delay`
  Duration reorder_delay = std::chrono::microseconds{20};
  double corrupt = 0;  // flips one bit, anywhere
  double trim = 0;     // cuts the payload off
  double mark = 0;     // congestion mark
  // Every host has one port of this rate in each direction; zero: infinitely fast.
  Rate rate;
  Bytes queue_limit = ~Bytes{0};  // per receiving port; beyond it packets are trimmed or lost
  Bytes mark_above = ~Bytes{0};   // queue at the receiving port from which on packets are marked
  bool trim_when_full = false;
};

// What a scripted fault does to a packet.
enum class Action : std::uint8_t {
  lose,
  duplicate,
  delay,
  corrupt_header,
  corrupt_payload,
  trim,
  mark
};

// A scripted fault: skips the first `skip` packets that match, then acts on the next `count`. What
// is not set (`from`, `to`: host numbers; `path`) matches any. `delay` counts for Action::delay.
struct Rule {
  Packet kind = Packet::any;
  Action action = Action::lose;
  std::uint32_t skip = 0;
  std::uint32_t count = 1;
  std::optional<std::uint32_t> from{};
  std::optional<std::uint32_t> to{};
  std::optional<std::uint16_t> path{};
  Duration delay{};
};

// sent + injected + duplicated = delivered + lost + in_flight(), at any time.
struct NetworkCounts {
  std::uint64_t sent = 0;
  std::uint64_t injected = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t delivered = 0;
  std::uint64_t lost = 0;
  std::uint64_t trimmed = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t marked = 0;
  std::uint64_t reordered = 0;
};

// What an observer hears of. `injected` is traffic that a test has made up.
enum class NetworkEvent : std::uint8_t {
  sent,
  lost,
  delivered,
  trimmed,
  corrupted,
  duplicated,
  injected
};

// Packets are copied when they are sent, so an engine's memory may go at any time. All chance comes
// from one generator: the same seed and the same calls give the same run, and the same digest().
// The order of draws is part of that, so no draw is made for a fault that is off.
class VirtualNetwork {
 public:
  static constexpr std::uint32_t kNobody = 0xFFFFFFFF;

  struct InFlight {
    std::uint32_t from = 0;  // host numbers; kNobody when no host has that address
    std::uint32_t to = 0;
    srd::Address source;
    srd::PathId path;
    srd::Ecn ecn = srd::Ecn::not_capable;
    bool trimmed = false;
    bool genuine = true;  // exactly the bytes that an engine sent
    bool queues = false;  // still has to pass the queue of the receiving port
    std::uint16_t header_size = 0;
    std::vector<std::byte> bytes;
  };
  using Observer = std::function<void(TimePoint, NetworkEvent, const InFlight&)>;

  explicit VirtualNetwork(std::uint64_t seed) : rng_(seed) {}

  LinkModel& link() { return link_; }
  [[nodiscard]] const NetworkCounts& counts() const { return counts_; }
  [[nodiscard]] std::size_t in_flight() const { return queue_.size(); }
  [[nodiscard]] const Digest& digest() const { return digest_; }
  void observe(Observer observer) { observer_ = std::move(observer); }

  // --- Hosts. A host number is its attachment to the network; engines come and go behind it.
  std::uint32_t attach(const srd::Address& address);
  [[nodiscard]] std::uint32_t host_at(const srd::Address& address) const;

  // --- Scripts
  void add(const Rule& rule) { rules_.push_back(rule); }
  void lose_next(Packet kind, std::uint32_t count = 1, std::uint32_t skip = 0) {
    add({.kind = kind, .action = Action::lose, .skip = skip, .count = count});
  }
  void duplicate_next(Packet kind, std::uint32_t count = 1) {
    add({.kind = kind, .action = Action::duplicate, .count = count});
  }
  void delay_next(Packet kind, Duration delay, std::uint32_t count = 1, std::uint32_t skip = 0) {
    add({.kind = kind, .action = Action::delay, .skip = skip, .count = count, .delay = delay});
  }
  void trim_next(Packet kind, std::uint32_t count = 1) {
    add({.kind = kind, .action = Action::trim, .count = count});
  }
  void clear_rules() { rules_.clear(); }

  // --- Lasting faults
  void kill_path(std::uint32_t from, std::uint16_t path) { dead_paths_.insert({from, path}); }
  void revive_path(std::uint32_t from, std::uint16_t path) { dead_paths_.erase({from, path}); }
  void partition(std::uint32_t from, std::uint32_t to) { cut_.insert({from, to}); }
  void rejoin(std::uint32_t from, std::uint32_t to) { cut_.erase({from, to}); }
  // Ends every lasting, probable and scripted fault; what is in flight stays as it is.
  void heal();

  // --- Traffic
  void send(TimePoint now, std::uint32_t from, const srd::TxPacket& packet);
  // A packet that no engine sent.
  void inject(TimePoint when, InFlight packet);
  [[nodiscard]] TimePoint next_event() const;
  // Takes the next packet that has arrived by `now`; false if there is none.
  [[nodiscard]] bool receive(TimePoint now, InFlight& packet);
  // Gives the packet's buffer back for reuse, so that long runs do not allocate.
  void recycle(InFlight&& packet);

 private:
  struct Scheduled {
    TimePoint when;
    std::uint64_t order;  // ties are broken by age
    std::uint32_t slot;
  };
  // What is to happen to a packet that is being sent.
  struct Verdict {
    bool lose = false;
    bool duplicate = false;
    bool trim = false;
    bool mark = false;
    bool corrupt_header = false;
    bool corrupt_payload = false;
    Duration delay{};
  };
  // Of one host: when its port will have sent, and received, all that is queued so far, and how
  // many of its next packets a burst still loses.
  struct Port {
    TimePoint egress_free{};
    TimePoint ingress_free{};
    std::uint32_t burst_left = 0;
  };

  [[nodiscard]] Verdict judge(const InFlight& packet);
  void judge_by_script(const InFlight& packet, Verdict& verdict);
  void judge_by_chance(const InFlight& packet, Verdict& verdict);
  [[nodiscard]] TimePoint through_sending_port(TimePoint now, InFlight& packet);
  [[nodiscard]] bool through_receiving_port(TimePoint when, InFlight& packet);
  // Takes the earliest scheduled packet, which must exist. Returns when it was due.
  [[nodiscard]] TimePoint take_next(InFlight& packet);
  void schedule(TimePoint when, InFlight&& packet);
  void damage(InFlight& packet, std::size_t first, std::size_t size);
  void trim(TimePoint now, InFlight& packet);
  void note(TimePoint when, NetworkEvent event, const InFlight& packet);
  [[nodiscard]] InFlight fresh();

  LinkModel link_;
  Rng rng_;
  NetworkCounts counts_;
  Digest digest_;
  Observer observer_;
  std::vector<srd::Address> hosts_;
  std::vector<Port> ports_;
  std::vector<Rule> rules_;
  std::set<std::pair<std::uint32_t, std::uint16_t>> dead_paths_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> cut_;
  // By sender and receiver, and path: when the last packet of that path arrives, which the next
  // must not overtake.
  std::map<std::pair<std::uint64_t, std::uint16_t>, TimePoint> last_arrival_;
  std::vector<Scheduled> queue_;  // a heap, earliest first
  std::vector<InFlight> slots_;
  std::vector<std::uint32_t> free_slots_;
  // Buffers of packets that are gone.
  std::vector<std::vector<std::byte>> spare_;
  // Packets scheduled so far, see Scheduled::order.
  std::uint64_t order_ = 0;
};

}  // namespace weft::world
