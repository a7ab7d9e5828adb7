// Owns the rules about order: no packet may wait behind packets that have no right to go first.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emu/swarm/plan.hpp"
#include "emu/swarm/world_names.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::swarm {

// Sees the plan, the posted requests and the packets in the network, never the queues of an engine:
// so an engine whose own account of its queues is wrong is found too. The run calls posted() and
// saw() as things happen, and check_departures() after each step of time.
//
// The rules, for each pair of hosts:
// - a message of one packet is passed by packets of longer ones only as often as by its equals, and
//   once more;
// - messages of one packet leave in the order in which they were posted, whatever their endpoints;
// - a longer message that has begun is passed by packets of single ones only as often as by other
//   long ones, and once more; and by those of other size classes no more often than the longest
//   class has to wait while all are busy;
// - a host sends at most kTurn packets to one peer in a row while another peer is ready;
// - a request to a peer with which nothing is under way leaves at once, whichever other peer is
//   silent;
// - a path all of whose packets were marked is used again only when its turn comes, and one that a
//   run of packets has taken, only once for that run.
//
// A lost packet, a probe or a restart makes a flow `disturbed`: its paths are not judged after
// that, because what the sender knows of them can no longer be derived from outside.
class Fairness {
 public:
  explicit Fairness(const Plan& plan);

  // The first rule that was broken, or empty.
  [[nodiscard]] const std::string& verdict() const { return verdict_; }

  // The engine has accepted request `number`. `open`: requests that are under way between the two
  // hosts in either direction, this one included.
  void posted(TimePoint now, std::uint64_t number, const Step& step, std::uint32_t open);
  // Every event of the network, in the order of time.
  void saw(TimePoint when, NetworkEvent event, const VirtualNetwork::InFlight& packet);
  // Time has advanced: checks that what had to leave at once has left.
  void check_departures(TimePoint now);
  // The host's application has cancelled requests.
  void withdrawn(std::uint32_t host);
  // The host has crashed, or is paused.
  void forget(std::uint32_t host);

 private:
  using Flow = std::pair<std::uint32_t, std::uint32_t>;  // from, to

  // Packets that have left for the first time.
  struct Departures {
    std::uint64_t singles = 0;  // of messages of one packet
    std::uint64_t bulk = 0;     // of longer ones
  };
  // A message of many packets of which one has left.
  struct LongMessage {
    std::uint32_t packets_left = 0;
    Departures since;  // what had left with its latest packet
  };
  // The packets to one peer that have left one after the other at one time.
  struct Stretch {
    TimePoint when{};
    std::uint32_t to = 0;
    std::uint32_t packets = 0;
  };
  // How often a path may be taken before more is known of it: once for each unmarked packet that
  // came along it, or for each run of which one came, and for each round in which the selector may
  // explore it.
  static constexpr std::uint64_t kExplorations = 2;  // a round's, and a reply's
  struct PathUse {
    std::uint64_t allowed = kExplorations;
    std::uint64_t round = 0;  // at the latest departure along it
  };
  // Packets in a row that left along one path at one time.
  struct PathRun {
    std::uint32_t sent_at = 0;
    std::uint16_t path = 0;
    std::uint32_t bytes = 0;
  };
  struct FlowState {
    Departures left;
    std::map<std::uint64_t, Departures> sends;    // that wait, by their number
    std::map<std::uint32_t, Departures> answers;  // to reads, by their message
    std::uint64_t latest_send = 0;                // of those that left, the one posted last
    std::map<std::pair<bool, std::uint32_t>, LongMessage> begun;  // answer or not, message
    std::optional<TimePoint> must_leave;  // since when something should have left
    bool disturbed = false;               // paths are not judged any more
    bool answered = false;                // an answer to a cancelled read may still be under way
    std::uint64_t departures = 0;         // runs, where packets leave in runs
    PathRun run;
    // Where packets leave in runs, by their numbers: the first one of those that have left one
    // after the other at one time along one path. Forgotten when one of them has come back.
    std::map<std::uint32_t, std::uint32_t> begun_by;
    std::uint32_t run_begins = 0;  // the first packet of the latest of them
    std::map<std::uint16_t, PathUse> paths;
  };

  void sent(const VirtualNetwork::InFlight& packet, const srd::wire::DataHeader& header);
  void sent_data(const VirtualNetwork::InFlight& packet, const srd::wire::DataHeader& header,
                 FlowState& flow);
  void arrived(const VirtualNetwork::InFlight& packet);
  void sent_bulk(const Flow& who, FlowState& flow, const srd::wire::DataHeader& header,
                 bool answer);
  void check_stretch(TimePoint when, const VirtualNetwork::InFlight& packet);
  void check_turn(const Flow& flow, const FlowState& state, const Departures& since,
                  const std::string& what);
  void check_path(const Flow& who, FlowState& flow, const srd::wire::DataHeader& header);
  [[nodiscard]] bool goes_on_with_run(const Flow& who, FlowState& flow,
                                      const srd::wire::DataHeader& header) const;
  void came_back(const Flow& who, FlowState& flow, srd::PathId path, std::uint32_t number) const;
  void allow(std::uint32_t sender, PathUse& use, std::uint64_t departures) const;
  [[nodiscard]] bool keeps_order(std::uint32_t host) const;
  [[nodiscard]] bool leaves_at_once(std::uint32_t host) const;
  [[nodiscard]] bool recycles_paths(std::uint32_t host) const;

  const Plan& plan_;
  std::string verdict_;
  std::map<Flow, FlowState> flows_;
  std::map<std::uint32_t, Stretch> stretches_;  // by host
  std::uint32_t must_leave_ = 0;                // flows of which something should have left
};

}  // namespace weft::swarm
