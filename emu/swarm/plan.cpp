// Owns the random choice of configurations, workloads and fault schedules.
#include "emu/swarm/plan.hpp"

#include <algorithm>
#include <array>

#include "srd/engine/requests.hpp"

namespace weft::swarm {
namespace {

constexpr std::uint32_t kQkeyBase = 0x5EED00;

template <class T, std::size_t N>
const T& one_of(Rng& rng, const std::array<T, N>& choices) {
  return choices[rng.below(static_cast<std::uint32_t>(N))];
}

Duration some_time(Rng& rng, Duration low, Duration high) {
  return Duration{static_cast<std::int64_t>(rng.between(static_cast<std::uint64_t>(low.count()),
                                                        static_cast<std::uint64_t>(high.count())))};
}

// A serial number somewhere, often just before the wrap.
std::uint32_t near_wrap(Rng& rng) {
  switch (rng.below(3)) {
    case 0:
      return 0xFFFFFFFFU - rng.below(64);
    case 1:
      return 0x7FFFFFFFU - rng.below(64);
    default:
      return static_cast<std::uint32_t>(rng.next());
  }
}

struct Mood {
  bool corruption = false;
  bool hostile = false;
  bool restarts = false;
  bool flaws = false;
  bool churn = false;  // endpoints and regions come and go
  bool partitions = false;
  double noise = 0;  // share of the largest random loss etc.
};

srd::EngineConfig random_engine(Rng& rng, const Mood& mood, const LinkModel& link) {
  using namespace std::chrono_literals;
  static constexpr std::array<const char*, 6> kSelectors{"reps",   "oblivious", "ecmp",
                                                         "bitmap", "po2",       "plb"};
  static constexpr std::array<const char*, 5> kControls{"nscc", "swift", "dctcp", "mprdma",
                                                        "fixed"};
  static constexpr std::array<std::uint32_t, 6> kWindows{8, 16, 64, 256, 1024, 2048};
  static constexpr std::array<std::uint16_t, 6> kPaths{1, 2, 4, 16, 64, 256};
  static constexpr std::array<std::uint32_t, 4> kMtus{64, 256, 1024, 4096};

  srd::EngineConfig c;
  c.attachment = srd::AttachmentId{static_cast<std::uint16_t>(rng.below(4))};
  c.seed = rng.next();
  c.life = srd::Life{std::max(1U, near_wrap(rng))};
  c.first_psn = Psn{near_wrap(rng)};
  c.max_peers = 256;
  c.max_work_requests = 32U << rng.below(6);
  c.max_completions = c.max_work_requests * 4;
  c.max_reads_per_peer = 1U << rng.below(7);
  c.window_packets = one_of(rng, kWindows);
  c.mtu_payload = one_of(rng, kMtus);
  c.checksum = mood.corruption || mood.hostile || rng.chance(0.8);
  c.paths = one_of(rng, kPaths);
  c.path_selector = rng.chance(0.4) ? "reps" : one_of(rng, kSelectors);
  c.congestion_control = one_of(rng, kControls);
  c.path_timeouts_to_abandon = static_cast<std::uint8_t>(1 + rng.below(3));
  c.path_probe_interval = some_time(rng, 200us, 5ms);
  c.path_reorder_tolerance = static_cast<std::uint8_t>(rng.chance(0.7) ? 0 : rng.below(8));
  if (!link.rate.is_zero()) {
    c.line_rate = link.rate;
  }
  c.base_rtt = link.latency * 2;
  if (rng.chance(0.1)) {  // told the wrong thing
    c.base_rtt = c.base_rtt * (1 + rng.below(4)) / 2 + 1us;
  }
  c.trimming = rng.chance(0.5);
  c.receiver_credits = rng.chance(0.25);
  c.ack_every = static_cast<std::uint8_t>(std::min(c.window_packets, 1U << rng.below(5)));
  c.ack_delay = some_time(rng, 0us, 5us);
  c.peer_timeout = some_time(rng, 10ms, 60ms);
  c.max_rto = c.peer_timeout / 8;
  c.min_rto = rng.chance(0.7) ? 0us : some_time(rng, 20us, 200us);
  c.rnr_delay = some_time(rng, 2us, 50us);
  if (rng.chance(0.25)) {
    c.forced_reorder = static_cast<std::uint16_t>(1 + rng.below(std::min(32U, c.window_packets)));
  }
  return c;
}

LinkModel random_link(Rng& rng) {
  using namespace std::chrono_literals;
  LinkModel link;
  link.latency = some_time(rng, 500ns, 20us);
  link.path_skew = rng.chance(0.4) ? some_time(rng, 1ns, 300ns) : 0ns;
  link.jitter = rng.chance(0.5) ? some_time(rng, 10ns, 3us) : 0ns;
  if (rng.chance(0.4)) {
    link.rate = Rate::gbps(static_cast<double>(5 + rng.below(100)));
    link.mark_above = 20'000 + rng.below(100'000);
    link.queue_limit = link.mark_above * (2 + rng.below(4));
    link.trim_when_full = rng.chance(0.5);
  }
  return link;
}

std::vector<EndpointPlan> random_endpoints(Rng& rng, std::uint32_t mtu) {
  std::vector<EndpointPlan> endpoints(1 + rng.below(3));
  for (std::uint32_t i = 0; i < endpoints.size(); ++i) {
    EndpointPlan& e = endpoints[i];
    e.qpn = srd::Qpn{0x100 + i * 7};
    e.qkey = kQkeyBase + rng.below(4);
    e.receive_depth = 4U << rng.below(6);
    e.receive_size = rng.chance(0.8) ? mtu : mtu / 2;
    e.unsolicited_immediate = rng.chance(0.3);
    e.replenish = rng.chance(0.8);
  }
  return endpoints;
}

// Lengths around every boundary there is.
std::uint32_t random_length(Rng& rng, std::uint32_t mtu, bool many_packets) {
  switch (rng.below(8)) {
    case 0:
      return 0;
    case 1:
      return rng.below(9);
    case 2:
      return mtu;
    case 3:
      return many_packets ? mtu + rng.below(3) : mtu - rng.below(3);
    case 4:
      return many_packets ? mtu * (2 + rng.below(24)) + rng.below(mtu) : rng.below(mtu + 1);
    default:
      return rng.below((many_packets ? mtu * 4 : mtu) + 1);
  }
}

Flaw random_flaw(Rng& rng, Act act) {
  static constexpr std::array<Flaw, 2> kSendFlaws{Flaw::bad_qpn, Flaw::bad_qkey};
  static constexpr std::array<Flaw, 7> kRemoteFlaws{
      Flaw::bad_qpn,   Flaw::bad_key,       Flaw::stale_key, Flaw::wrong_domain,
      Flaw::no_access, Flaw::out_of_bounds, Flaw::straddling};
  return act == Act::send ? one_of(rng, kSendFlaws) : one_of(rng, kRemoteFlaws);
}

class Planner {
 public:
  explicit Planner(std::uint64_t seed) : rng_(mix64(seed ^ 0x57A2)) { plan_.seed = seed; }

  Plan make() {
    using namespace std::chrono_literals;
    mood_.corruption = rng_.chance(0.35);
    mood_.hostile = rng_.chance(0.35);
    mood_.restarts = rng_.chance(0.35);
    mood_.flaws = rng_.chance(0.5);
    mood_.churn = rng_.chance(0.35);
    mood_.partitions = rng_.chance(0.3);
    mood_.noise = rng_.chance(0.25) ? 0 : rng_.unit();
    plan_.link = random_link(rng_);
    const std::uint32_t hosts = rng_.chance(0.6) ? 2 : 3 + rng_.below(3);
    for (std::uint32_t i = 0; i < hosts; ++i) {
      plan_.hosts.emplace_back();
      HostPlan& host = plan_.hosts.back();
      host.engine = random_engine(rng_, mood_, plan_.link);
      // What has to be agreed on between the ends.
      host.engine.checksum = plan_.hosts[0].engine.checksum;
      host.engine.mtu_payload = plan_.hosts[0].engine.mtu_payload;
      host.engine.receiver_credits = plan_.hosts[0].engine.receiver_credits;
      host.endpoints = random_endpoints(rng_, host.engine.mtu_payload);
      host.poll_interval = rng_.chance(0.75) ? 0us : some_time(rng_, 1us, 200us);
    }
    plan_.end_of_faults = some_time(rng_, 200us, 4ms);
    if (mood_.partitions) {
      plan_.end_of_faults += some_time(rng_, 1ms, 150ms);
    }
    add_work();
    add_noise();
    add_faults();
    std::stable_sort(plan_.steps.begin(), plan_.steps.end(),
                     [](const Step& a, const Step& b) { return a.at < b.at; });
    return std::move(plan_);
  }

 private:
  std::uint8_t any_host() {
    return static_cast<std::uint8_t>(rng_.below(static_cast<std::uint32_t>(plan_.hosts.size())));
  }
  std::uint8_t other_host(std::uint8_t host) {
    const auto count = static_cast<std::uint32_t>(plan_.hosts.size());
    return static_cast<std::uint8_t>((host + 1 + rng_.below(count - 1)) % count);
  }
  std::uint8_t any_endpoint(std::uint8_t host) {
    return static_cast<std::uint8_t>(
        rng_.below(static_cast<std::uint32_t>(plan_.hosts[host].endpoints.size())));
  }
  Step& add(Act act) {
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
  // A fault that begins somewhere and ends before all faults end.
  void add_interval(Act begin, Act end, Duration longest) {
    const Step first = add(begin);
    Step last = first;
    last.act = end;
    last.at = std::min(plan_.end_of_faults, first.at + some_time(rng_, Duration{1000}, longest));
    plan_.steps.push_back(last);
  }

  void add_work() {
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

  Step random_request(const Step& model, double bulk) {
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

  void add_noise() {
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

  void add_faults() {
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

  void add_churn() {
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

  void add_hostility() {
    static constexpr std::array<Act, 5> kActs{Act::inject_random, Act::inject_mutated,
                                              Act::inject_truncated, Act::replay,
                                              Act::replay_foreign};
    for (std::uint32_t i = 4 + rng_.below(30); i > 0; --i) {
      Step& step = add(one_of(rng_, kActs));
      step.length = 1 + rng_.below(8);
    }
  }

  Rng rng_;
  Mood mood_;
  Plan plan_;
};

}  // namespace

Plan make_plan(std::uint64_t seed) { return Planner(seed).make(); }

}  // namespace weft::swarm
