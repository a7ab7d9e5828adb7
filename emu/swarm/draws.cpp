// Owns the probabilities of what a run is made of.
#include "emu/swarm/draws.hpp"

#include <algorithm>

#include "srd/wire/srd_header.hpp"

namespace weft::swarm {
namespace {

constexpr std::uint32_t kQkeyBase = 0x5EED00;
constexpr std::array<std::uint32_t, 4> kMtus{64, 256, 1024, 4096};

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

// How long a port is busy with the longest packet.
Duration port_time(const LinkModel& link) {
  return link.rate.is_zero() ? Duration::zero()
                             : link.rate.time_for(kMtus.back() + sizeof(srd::wire::DataHeader));
}

}  // namespace

Duration some_time(Rng& rng, Duration low, Duration high) {
  return Duration{static_cast<std::int64_t>(rng.between(static_cast<std::uint64_t>(low.count()),
                                                        static_cast<std::uint64_t>(high.count())))};
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
  c.pace_step = c.ack_delay / 2;
  c.peer_timeout = some_time(rng, 10ms, 60ms);
  c.max_rto = c.peer_timeout / 8;
  c.min_rto = rng.chance(0.7) ? 0us : some_time(rng, 20us, 200us);
  c.rnr_delay = some_time(rng, 2us, 50us);
  if (rng.chance(0.25)) {
    c.forced_reorder = static_cast<std::uint16_t>(1 + rng.below(std::min(32U, c.window_packets)));
  }
  if (rng.chance(0.25)) {
    c.path_run = static_cast<std::uint32_t>(rng.between(64, 16 * c.mtu_payload));
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

}  // namespace weft::swarm
