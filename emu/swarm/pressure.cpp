// Owns the work of a plan that meets a limit, a fault or other work at the worst of times.
#include <algorithm>

#include "emu/swarm/planner.hpp"
#include "srd/engine/requests.hpp"

namespace weft::swarm {
namespace {

constexpr std::uint32_t kMaxReadable = 30'000;  // of the region that reads are from
constexpr std::uint32_t kManyImmediates = 48;
constexpr std::uint32_t kBursts = 24;
constexpr std::uint32_t kLongInPackets = 1000;

}  // namespace

void Planner::add_pressure() {
  if (mood_.tiny) {
    add_full_ends();
  }
  if (mood_.restarts) {
    add_work_across_restarts();
  }
  if (mood_.cancels) {
    add_cancelled_reads();
  }
  if (mood_.unready) {
    add_unready_endpoint();
  }
  if (mood_.strangers) {
    for (std::uint32_t i = 4 + rng_.below(30); i > 0; --i) {
      add(Act::stranger_speaks).length = 1 + rng_.below(kStrangersAtOnce);
    }
  }
  if (mood_.slow) {
    for (std::uint32_t i = 4 + rng_.below(12); i > 0; --i) {
      add_interval(Act::pause, Act::resume, std::chrono::microseconds{500});
    }
  }
  if (mood_.bulk) {
    add_short_beside_long();
  }
  if (mood_.marks) {
    add_marked_bursts();
  }
}

Step& Planner::add_request(const Step& model, Act act, Duration later, std::uint32_t length) {
  Step step = model;
  step.act = act;
  step.at = std::min(model.at + later, plan_.end_of_faults);
  step.length = length;
  step.rnr_retry = srd::kRnrRetryForever;
  step.random = rng_.next();
  plan_.steps.push_back(step);
  return plan_.steps.back();
}

Step Planner::occasion() {
  const Step step = add(Act::send);
  plan_.steps.pop_back();
  return step;
}

void Planner::add_full_ends() {
  for (std::uint32_t n = 1 + rng_.below(4); n > 0; --n) {
    const Step here = occasion();
    Step there = here;
    std::swap(there.host, there.peer);
    std::swap(there.endpoint, there.peer_endpoint);
    for (const Step& end : {here, there}) {
      for (std::uint32_t i = plan_.hosts[end.host].engine.max_work_requests; i > 0; --i) {
        add_request(end, Act::send, Duration::zero(), rng_.below(mtu() / 2 + 1));
      }
    }
  }
}

void Planner::add_work_across_restarts() {
  const std::size_t count = plan_.steps.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (plan_.steps[i].act != Act::restart || rng_.chance(0.3)) {
      continue;
    }
    Step model = occasion();
    model.peer = plan_.steps[i].host;
    model.host = other_host(model.peer);
    model.endpoint = any_endpoint(model.host);
    model.peer_endpoint = any_endpoint(model.peer);
    const Duration before =
        some_time(rng_, Duration::zero(), 4 * plan_.hosts[model.host].engine.base_rtt);
    model.at = std::max(Duration::zero(), plan_.steps[i].at - before);
    add_request(model, Act::send, Duration::zero(), 8);
    for (std::uint32_t n = 4 + rng_.below(20); n > 0; --n) {
      add_request(model, rng_.chance(0.7) ? Act::write : Act::read, before / 2,
                  std::min(mtu() * (1 + rng_.below(8)), kMaxReadable));
    }
  }
}

void Planner::add_cancelled_reads() {
  for (std::uint32_t n = 1 + rng_.below(6); n > 0; --n) {
    const Step model = occasion();
    const Duration rtt = plan_.hosts[model.host].engine.base_rtt;
    for (std::uint32_t turn = 1 + rng_.below(4); turn > 0; --turn) {
      const Duration at = rtt * (2 * turn);
      for (std::uint32_t i = 1 + rng_.below(4); i > 0; --i) {
        add_request(model, Act::read, at, std::min(mtu() * (2 + rng_.below(16)), kMaxReadable));
      }
      add_request(model, Act::flush, at + some_time(rng_, rtt / 2, 2 * rtt), 0);
    }
  }
}

void Planner::add_unready_endpoint() {
  const Step model = occasion();
  std::vector<EndpointPlan>& endpoints = plan_.hosts[model.peer].endpoints;
  EndpointPlan& unready = endpoints[model.peer_endpoint];
  unready.replenish = unready.unsolicited_immediate = false;
  const Duration rtt = plan_.hosts[model.host].engine.base_rtt;
  for (std::uint32_t i = 0; i < kManyImmediates; ++i) {
    Step& refused = add_request(model, Act::write, i * rtt / 2, mtu() + 1 + rng_.below(mtu()));
    refused.immediate = true;
    refused.rnr_retry = static_cast<std::uint8_t>(rng_.below(2));
    if (rng_.chance(0.3)) {
      Step& other = add_request(model, Act::write, i * rtt, mtu() + 1 + rng_.below(mtu()));
      other.immediate = true;
      other.peer_endpoint = any_endpoint(model.peer);
    }
  }
}

void Planner::add_short_beside_long() {
  const Step here = occasion();
  Step there = here;
  std::swap(there.host, there.peer);
  std::swap(there.endpoint, there.peer_endpoint);
  for (std::uint32_t i = 1 + rng_.below(3); i > 0; --i) {
    add_request(here, Act::write, Duration::zero(), kLongInPackets * mtu()).phantom = true;
  }
  for (std::uint32_t i = rng_.below(8); i > 0; --i) {  // and of other size classes
    add_request(here, Act::write, Duration::zero(), mtu() * (2U << rng_.below(9))).phantom = true;
  }
  for (std::uint32_t i = 4 + rng_.below(12); i > 0; --i) {
    const Duration later = some_time(rng_, Duration::zero(), std::chrono::microseconds{100});
    add_request(there, Act::read, later, 1 + rng_.below(mtu()));
    add_request(here, Act::send, later, rng_.below(mtu() / 2));
  }
}

void Planner::add_marked_bursts() {
  Step marking = occasion();
  marking.act = Act::set_mark;
  marking.at = Duration::zero();
  marking.value = 1;
  plan_.steps.push_back(marking);
  const Step model = occasion();
  for (std::uint32_t burst = 0; burst < kBursts; ++burst) {
    for (std::uint32_t i = 4 + rng_.below(12); i > 0; --i) {
      add_request(model, Act::send, burst * 4 * plan_.link.latency, rng_.below(mtu() / 2));
    }
  }
}

}  // namespace weft::swarm
