// Owns the plan of one swarm run: everything random is decided before the run starts. So a plan can
// be shrunk: steps are left out one by one, and the rest stays the same (swarm.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emu/swarm/world_names.hpp"
#include "srd/engine/config.hpp"
#include "srd/engine/types.hpp"

namespace weft::swarm {

// One kind of step. The groups stand one behind the other, and Run::perform() tells them apart by
// comparing values; plan_text.cpp has a name for each, in this order.
enum class Act : std::uint8_t {
  // The applications' work
  send,
  write,
  read,
  post_receives,
  flush,
  close_endpoint,
  open_endpoint,
  stop_receiving,
  start_receiving,
  replace_region,  // deregister the volatile region and register another in its place
  // Faults of hosts
  restart,
  crash,
  start,
  pause,
  resume,
  // Faults of the network
  set_loss,
  set_burst,
  set_duplicate,
  set_reorder,
  set_corrupt,
  set_trim,
  set_mark,
  set_jitter,
  partition,
  rejoin,
  kill_path,
  revive_path,
  // Hostile packets
  inject_random,
  inject_mutated,
  inject_truncated,
  replay,
  replay_foreign,
  stranger_speaks,  // packets of an unknown or unverifiable sender: all must have no effect
};
[[nodiscard]] const char* to_string(Act act);

// What is wrong with a request, if anything.
enum class Flaw : std::uint8_t {
  none,
  bad_qpn,
  bad_qkey,
  bad_key,
  stale_key,
  wrong_domain,
  no_access,
  out_of_bounds,
  straddling,  // begins inside of the region and ends outside
};

// One event of a plan. Which fields count depends on the act; the others are ignored. A step whose
// precondition does not hold when its time comes (host down, endpoint closed) is left out: so any
// subset of the steps is a plan, which shrink() needs.
struct Step {
  Duration at{};  // since the start of the run
  Act act = Act::send;
  std::uint8_t host = 0;
  std::uint8_t peer = 0;
  std::uint8_t endpoint = 0;
  std::uint8_t peer_endpoint = 0;
  Flaw flaw = Flaw::none;
  bool immediate = false;
  bool volatile_region = false;
  bool phantom = false;
  std::uint8_t rnr_retry = 7;
  std::uint16_t path = 0;
  std::uint32_t length = 0;  // of a message; or a count
  double value = 0;          // of a probability
  std::uint64_t random = 0;  // for choices that depend on the state of the run
};
[[nodiscard]] std::string to_string(const Step& step);

struct EndpointPlan {
  srd::Qpn qpn;
  std::uint32_t qkey = 0;
  std::uint32_t receive_depth = 0;
  std::uint32_t receive_size = 0;  // of every posted receive
  bool unsolicited_immediate = false;
  bool replenish = true;  // posts a new receive for every one that is used
};

// One host: the same configuration, but for its life, serves every process that runs on it.
struct HostPlan {
  srd::EngineConfig engine;
  std::vector<EndpointPlan> endpoints;
  Duration poll_interval{};  // zero: polls whenever anything has happened
};

// The laziest application of any plan; the end of a run waits at least so long.
inline constexpr Duration kMaxPollInterval = std::chrono::milliseconds{2};

struct Plan {
  std::uint64_t seed = 0;
  std::vector<HostPlan> hosts;
  LinkModel link;
  std::vector<Step> steps;  // in the order of time
  Duration end_of_faults{};
};

// The same seed gives the same plan, on every machine.
[[nodiscard]] Plan make_plan(std::uint64_t seed);
// Whether messages are replayed from addresses where no host is. To the transport these are
// messages of a stranger, so rules about what no host sent do not hold.
[[nodiscard]] bool has_foreign_replays(const Plan& plan);
// The network and each host with its configuration, a line each.
[[nodiscard]] std::vector<std::string> describe(const Plan& plan);

}  // namespace weft::swarm
