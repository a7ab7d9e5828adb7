// Owns the random choice of configurations, workloads and fault schedules.
//
// A plan has moods, which are drawn first: each makes one kind of trouble likely. A run with all
// kinds at once would rarely get far enough into any of them.
#include "emu/swarm/plan.hpp"

#include <algorithm>
#include <array>

#include "srd/engine/requests.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::swarm {
namespace {

constexpr std::uint32_t kQkeyBase = 0x5EED00;
constexpr std::array<std::uint32_t, 4> kMtus{64, 256, 1024, 4096};

template <class T, std::size_t N>
const T& one_of(Rng& rng, const std::array<T, N>& choices) {
  return choices[rng.below(static_cast<std::uint32_t>(N))];
}

Duration some_time(Rng& rng, Duration low, Duration high) {
  return Duration{static_cast<std::int64_t>(rng.between(static_cast<std::uint64_t>(low.count()),
                                                        static_cast<std::uint64_t>(high.count())))};
}

// A serial number, often just before it wraps, or just before it turns negative.
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
  bool tiny = false;       // limits of a few requests, and both ends full
  bool cancels = false;    // reads are flushed, and others follow at once
  bool unready = false;    // one endpoint never posts a receive, and many want one
  bool slow = false;       // a host that looks rarely and stands still now and then
  bool bulk = false;       // short messages beside very long ones
  bool marks = false;      // every packet is marked, and they come in bursts
  bool strangers = false;  // many who are nobody speak, and there is no room for them
  double noise = 0;        // share of the largest random loss etc.
};

// How long a port is busy with the longest packet.
Duration port_time(const LinkModel& link) {
  return link.rate.is_zero() ? Duration::zero()
                             : link.rate.time_for(kMtus.back() + sizeof(srd::wire::DataHeader));
}

srd::EngineConfig random_engine(Rng& rng, const Mood& mood, const LinkModel& link) {
  using namespace std::chrono_literals;
  static constexpr std::array<const char*, 7> kSelectors{"reps", "oblivious", "ecmp", "bitmap",
                                                         "po2",  "plb",       "mixed"};
  static constexpr std::array<const char*, 6> kControls{"srd",   "nscc",   "swift",
                                                        "dctcp", "mprdma", "fixed"};
  static constexpr std::array<std::uint32_t, 6> kWindows{8, 16, 64, 256, 1024, 2048};
  static constexpr std::array<std::uint16_t, 6> kPaths{1, 2, 4, 16, 64, 256};

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
  // Congestion controls expect the longest path's round trip, and what two ports take on it.
  c.base_rtt = 2 * (link.latency + link.jitter + link.path_skew * kPaths.back() + port_time(link));
  if (rng.chance(0.1)) {  // measured badly: up to twice as long
    c.base_rtt = c.base_rtt * (2 + rng.below(3)) / 2 + 1us;
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
    if (rng.chance(0.3)) {  // switches without ECN
      link.mark_above = ~Bytes{0};
    }
  }
  return link;
}

// Receives too small, or none at all, make length errors and receiver_not_ready happen.
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

// Lengths around every boundary that there is.
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

// Draws in a fixed order from one generator: a seed stands for one plan, until a draw is added.
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

 private:
  // Settings that the whole network, or some of its hosts, must have for a mood to show.
  void adapt_to_mood() {
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
      plan_.hosts[any_host()].poll_interval = some_time(rng_, 200us, kLongestPollInterval);
    }
  }

  // --- Work that meets a limit, a fault or other work at the worst of times.

  void add_pressure() {
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

  [[nodiscard]] std::uint32_t mtu() const { return plan_.hosts[0].engine.mtu_payload; }

  // A request like `model`, some time later.
  Step& add_request(const Step& model, Act act, Duration later, std::uint32_t length) {
    Step step = model;
    step.act = act;
    step.at = std::min(model.at + later, plan_.end_of_faults);
    step.length = length;
    step.rnr_retry = srd::kRnrRetryForever;
    step.random = rng_.next();
    plan_.steps.push_back(step);
    return plan_.steps.back();
  }

  // A time and two hosts for what add_request() adds; no step of its own.
  Step occasion() {
    const Step step = add(Act::send);
    plan_.steps.pop_back();
    return step;
  }

  // Two hosts send to each other all that they may have under way.
  void add_full_ends() {
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

  // One-sided work of which much waits for its turn when the life that it is meant for ends.
  void add_work_across_restarts() {
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
                    std::min(mtu() * (1 + rng_.below(8)), kMostReadable));
      }
    }
  }

  void add_cancelled_reads() {  // late answers must not reach the reads that follow
    for (std::uint32_t n = 1 + rng_.below(6); n > 0; --n) {
      const Step model = occasion();
      const Duration rtt = plan_.hosts[model.host].engine.base_rtt;
      for (std::uint32_t turn = 1 + rng_.below(4); turn > 0; --turn) {
        const Duration at = rtt * (2 * turn);
        for (std::uint32_t i = 1 + rng_.below(4); i > 0; --i) {
          add_request(model, Act::read, at, std::min(mtu() * (2 + rng_.below(16)), kMostReadable));
        }
        add_request(model, Act::flush, at + some_time(rng_, rtt / 2, 2 * rtt), 0);
      }
    }
  }

  // More writes with immediate data than a receiver has places to count them, to an endpoint that
  // never posts a receive, and others beside them.
  void add_unready_endpoint() {
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

  void add_short_beside_long() {  // fairness.cpp checks that the short ones do not wait
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

  // The network marks every packet: Fairness::check_path() shows which paths are taken again.
  void add_marked_bursts() {
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

  void add_work() {  // bursts between two endpoints
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

  void add_noise() {  // a value holds for the whole network until the next step of its kind
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

  void add_faults() {  // about half of the dead paths are revived before the end
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

  void add_churn() {  // what peers still use disappears
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

  static constexpr std::uint32_t kMostReadable = 30'000;  // of the region that reads are from
  static constexpr std::uint32_t kManyImmediates = 48;
  static constexpr std::uint32_t kBursts = 24;
  static constexpr std::uint32_t kStrangersAtOnce = 8;
  static constexpr std::uint32_t kLongInPackets = 1000;

  Rng rng_;
  Mood mood_;
  Plan plan_;
};

}  // namespace

Plan make_plan(std::uint64_t seed) { return Planner(seed).make(); }

bool has_foreign_replays(const Plan& plan) {
  return std::ranges::any_of(plan.steps,
                             [](const Step& step) { return step.act == Act::replay_foreign; });
}

}  // namespace weft::swarm
