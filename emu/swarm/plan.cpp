// Owns the random choice of workloads and fault schedules.
#include "emu/swarm/plan.hpp"

#include <algorithm>
#include <array>

#include "emu/swarm/planner.hpp"
#include "srd/engine/requests.hpp"

namespace weft::swarm {

Plan Planner::make() {
  using namespace std::chrono_literals;
  mood_.corruption = rng_.chance(0.35);
  mood_.hostile = rng_.chance(0.35);
  mood_.restarts = rng_.chance(0.35);
  mood_.flaws = rng_.chance(0.5);
  mood_.churn = rng_.chance(0.35);
  mood_.partitions = rng_.chance(0.3);
  mood_.noise = rng_.chance(0.25) ? 0 : rng_.unit();
  mood_.tiny = rng_.chance(0.08);
  mood_.cancels = rng_.chance(0.08);
  mood_.unready = rng_.chance(0.06);
  mood_.slow = rng_.chance(0.08);
  mood_.bulk = rng_.chance(0.06);
  mood_.marks = rng_.chance(0.03);
  mood_.strangers = !mood_.hostile && rng_.chance(0.08);
  plan_.link = random_link(rng_);
  const std::uint32_t hosts = rng_.chance(0.6) ? 2 : 3 + rng_.below(3);
  for (std::uint32_t i = 0; i < hosts; ++i) {
    plan_.hosts.emplace_back();
    HostPlan& host = plan_.hosts.back();
    host.engine = random_engine(rng_, mood_, plan_.link);
    // Both ends of a connection have to agree on these.
    host.engine.checksum = plan_.hosts[0].engine.checksum;
    host.engine.mtu_payload = plan_.hosts[0].engine.mtu_payload;
    host.engine.receiver_credits = plan_.hosts[0].engine.receiver_credits;
    host.endpoints = random_endpoints(rng_, host.engine.mtu_payload);
    host.poll_interval = rng_.chance(0.75) ? 0us : some_time(rng_, 1us, 200us);
  }
  adapt_to_mood();
  plan_.end_of_faults = some_time(rng_, 200us, 4ms);
  if (mood_.partitions) {
    plan_.end_of_faults += some_time(rng_, 1ms, 150ms);
  }
  add_work();
  if (!mood_.marks) {
    add_noise();
    add_faults();
  }
  add_pressure();
  std::stable_sort(plan_.steps.begin(), plan_.steps.end(),
                   [](const Step& a, const Step& b) { return a.at < b.at; });
  return std::move(plan_);
}

void Planner::adapt_to_mood() {
  using namespace std::chrono_literals;
  for (HostPlan& host : plan_.hosts) {
    srd::EngineConfig& engine = host.engine;
    if (mood_.tiny) {
      engine.max_work_requests = engine.max_completions = 1 + rng_.below(8);
      engine.max_reads_per_peer = 1 + rng_.below(4);
    }
    if (mood_.strangers) {
      engine.max_peers = static_cast<std::uint32_t>(plan_.hosts.size()) + kStrangersAtOnce;
    }
    if (mood_.marks) {
      engine.path_selector = "reps";
      engine.paths = rng_.chance(0.5) ? 64 : 256;
      engine.base_rtt = 2 * plan_.link.latency;
    }
  }
  if (mood_.marks) {  // no jitter, no skew, no queue: packets that leave together arrive together
    LinkModel even;
    even.latency = plan_.link.latency;
    plan_.link = even;
  }
  if (mood_.slow) {
    plan_.hosts[any_host()].poll_interval = some_time(rng_, 200us, kMaxPollInterval);
  }
}

std::uint8_t Planner::any_host() {
  return static_cast<std::uint8_t>(rng_.below(static_cast<std::uint32_t>(plan_.hosts.size())));
}

std::uint8_t Planner::other_host(std::uint8_t host) {
  const auto count = static_cast<std::uint32_t>(plan_.hosts.size());
  return static_cast<std::uint8_t>((host + 1 + rng_.below(count - 1)) % count);
}

std::uint8_t Planner::any_endpoint(std::uint8_t host) {
  return static_cast<std::uint8_t>(
      rng_.below(static_cast<std::uint32_t>(plan_.hosts[host].endpoints.size())));
}

Step& Planner::add(Act act) {
  Step step;
  step.act = act;
  step.at = some_time(rng_, Duration::zero(), plan_.end_of_faults);
  step.host = any_host();
  step.peer = other_host(step.host);
  step.endpoint = any_endpoint(step.host);
  step.peer_endpoint = any_endpoint(step.peer);
  step.random = rng_.next();
  plan_.steps.push_back(step);
  return plan_.steps.back();
}

void Planner::add_interval(Act begin, Act end, Duration longest) {
  const Step first = add(begin);
  Step last = first;
  last.act = end;
  last.at = std::min(plan_.end_of_faults, first.at + some_time(rng_, Duration{1000}, longest));
  plan_.steps.push_back(last);
}

void Planner::add_work() {
  const std::uint32_t bursts = 2 + rng_.below(20);
  const double bulk = rng_.unit();
  for (std::uint32_t b = 0; b < bursts; ++b) {
    Step model = add(Act::send);
    const std::uint32_t count = rng_.chance(0.3) ? 1 : 1 + rng_.below(24);
    for (std::uint32_t i = 0; i < count; ++i) {
      plan_.steps.push_back(random_request(model, bulk));
    }
  }
  for (std::uint32_t i = rng_.below(6); i > 0; --i) {
    add(Act::post_receives).length = 1 + rng_.below(64);
  }
}

Step Planner::random_request(const Step& model, double bulk) {
  Step step = model;
  const double kind = rng_.unit();
  step.act = kind < 0.45 ? Act::send : kind < 0.75 ? Act::write : Act::read;
  if (rng_.chance(0.2)) {
    step.endpoint = any_endpoint(step.host);
    step.peer_endpoint = any_endpoint(step.peer);
  }
  step.at += Duration{rng_.below(20'000)};
  step.length = random_length(rng_, plan_.hosts[0].engine.mtu_payload,
                              step.act != Act::send && rng_.chance(bulk));
  step.immediate = step.act != Act::read && rng_.chance(0.4);
  step.volatile_region = step.act == Act::write && rng_.chance(0.3);
  step.phantom = step.act == Act::write && rng_.chance(0.05);
  step.rnr_retry =
      static_cast<std::uint8_t>(rng_.chance(0.6) ? srd::kRnrRetryForever : rng_.below(7));
  step.random = rng_.next();
  if (mood_.flaws && rng_.chance(0.15)) {
    step.flaw = random_flaw(rng_, step.act);
    step.length = std::max(1U, step.length);  // without bytes no key is looked at
  }
  return step;
}

void Planner::add_noise() {
  struct Noise {
    Act act;
    double most;
  };
  static constexpr std::array<Noise, 6> kNoises{{{Act::set_loss, 0.2},
                                                 {Act::set_burst, 0.01},
                                                 {Act::set_duplicate, 0.2},
                                                 {Act::set_reorder, 0.3},
                                                 {Act::set_trim, 0.1},
                                                 {Act::set_mark, 0.3}}};
  for (const Noise& noise : kNoises) {
    for (std::uint32_t i = rng_.below(3); i > 0 && mood_.noise > 0; --i) {
      add(noise.act).value = noise.most * mood_.noise * rng_.unit();
    }
  }
  if (mood_.corruption) {
    add(Act::set_corrupt).value = 0.05 * rng_.unit();
  }
  if (rng_.chance(0.2)) {
    add(Act::set_jitter).value = rng_.unit();
  }
}

void Planner::add_faults() {
  for (std::uint32_t i = rng_.below(6); i > 0 && mood_.noise > 0; --i) {
    const std::uint16_t paths = plan_.hosts[0].engine.paths;
    const Step dead = add(Act::kill_path);
    plan_.steps.back().path = static_cast<std::uint16_t>(rng_.below(paths));
    if (rng_.chance(0.5)) {
      Step back = plan_.steps.back();
      back.act = Act::revive_path;
      back.at = some_time(rng_, dead.at, plan_.end_of_faults);
      plan_.steps.push_back(back);
    }
  }
  if (mood_.partitions) {
    for (std::uint32_t i = 1 + rng_.below(3); i > 0; --i) {
      add_interval(rng_.chance(0.7) ? Act::partition : Act::pause, Act::rejoin,
                   plan_.end_of_faults);
      if (plan_.steps[plan_.steps.size() - 2].act == Act::pause) {
        plan_.steps.back().act = Act::resume;
      }
    }
  }
  if (mood_.restarts) {
    for (std::uint32_t i = 1 + rng_.below(4); i > 0; --i) {
      if (rng_.chance(0.3)) {
        add_interval(Act::crash, Act::start, plan_.end_of_faults);
      } else {
        add(Act::restart);
      }
      if (rng_.chance(0.3)) {  // both at once
        Step twin = plan_.steps.back();
        twin.act = Act::restart;
        twin.host = plan_.steps.back().peer;
        twin.peer = plan_.steps.back().host;
        plan_.steps.push_back(twin);
      }
    }
  }
  if (mood_.churn) {
    add_churn();
  }
  if (mood_.hostile) {
    add_hostility();
  }
}

void Planner::add_churn() {
  using namespace std::chrono_literals;
  for (std::uint32_t i = 1 + rng_.below(4); i > 0; --i) {
    switch (rng_.below(4)) {
      case 0:
        add_interval(Act::close_endpoint, Act::open_endpoint, 500us);
        break;
      case 1:
        add_interval(Act::stop_receiving, Act::start_receiving, 500us);
        break;
      case 2:
        add(Act::replace_region);
        break;
      default:
        add(Act::flush);
        break;
    }
  }
}

void Planner::add_hostility() {
  static constexpr std::array<Act, 5> kActs{Act::inject_random, Act::inject_mutated,
                                            Act::inject_truncated, Act::replay,
                                            Act::replay_foreign};
  for (std::uint32_t i = 4 + rng_.below(30); i > 0; --i) {
    Step& step = add(one_of(rng_, kActs));
    step.length = 1 + rng_.below(8);
  }
}

Plan make_plan(std::uint64_t seed) { return Planner(seed).make(); }

bool has_foreign_replays(const Plan& plan) {
  return std::ranges::any_of(plan.steps,
                             [](const Step& step) { return step.act == Act::replay_foreign; });
}

}  // namespace weft::swarm
