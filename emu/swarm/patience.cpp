// Owns the sum of the times that open requests may take.
#include "emu/swarm/patience.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "srd/wire/srd_header.hpp"

namespace weft::swarm {
namespace {

// Time-outs before a peer that owes an answer is asked for it: as kWaitsBeforeQuestion in
// srd/engine/retransmission_timer.hpp.
constexpr int kPatience = 4;
// The longest back-off, in rnr_delay.
constexpr int kMaxBackOff = 64;

class Wait {
 public:
  explicit Wait(const Plan& plan) : plan_(plan) {
    for (const HostPlan& host : plan.hosts) {
      const srd::EngineConfig& engine = host.engine;
      paths_ = std::max(paths_, engine.paths);
      ack_delay_ = std::max(ack_delay_, engine.ack_delay);
      max_rto_ = std::max(max_rto_, engine.max_rto);
      back_off_ = std::max(back_off_, kMaxBackOff * engine.rnr_delay);
      look_ = std::max(look_, host.poll_interval);
      give_up_ = std::max(give_up_, engine.peer_timeout + engine.max_rto);
    }
  }

  // The payload of a read flows towards the host that asked.
  void add(const PostedRequest& request) {
    const Step& step = request.step;
    const bool read = request.kind == srd::Completion::Kind::read;
    const std::uint32_t mtu = plan_.hosts[step.host].engine.mtu_payload;
    const std::uint32_t packets = std::max(1U, (step.length + mtu - 1) / mtu);
    const Bytes bytes = step.length + Bytes{packets} * sizeof(srd::wire::DataHeader);
    const std::uint32_t to = read ? step.host : step.peer;
    const std::uint32_t from = read ? step.peer : step.host;
    packets_[{from, to}] += packets;
    bytes_into_[to] += bytes;
    if (read) {
      ++packets_[{step.host, step.peer}];
      ++reads_[step.peer];
    } else if (request.kind == srd::Completion::Kind::send || step.immediate) {
      ++messages_[{step.peer, step.peer_endpoint}];
    }
  }

  // A bound, not an estimate: the terms are added although they overlap. Answers to strangers
  // occupy a responder until it gives the strangers up.
  [[nodiscard]] Duration longest() const {
    return next_try() + (has_foreign_replays(plan_) ? give_up_ : Duration::zero()) +
           through_flows() + through_ports() + for_receives() + for_responders();
  }

 private:
  [[nodiscard]] Duration port_time(Bytes bytes) const {
    return plan_.link.rate.is_zero() ? Duration::zero() : plan_.link.rate.time_for(bytes);
  }
  [[nodiscard]] Duration round_trip() const {
    const LinkModel& link = plan_.link;
    const Bytes packet = plan_.hosts[0].engine.mtu_payload + sizeof(srd::wire::DataHeader);
    return 2 * (link.latency + link.jitter + link.path_skew * paths_ + 2 * port_time(packet)) +
           ack_delay_;
  }
  // What was lost before everything healed is sent again, or asked for; one more round trip and
  // time-out where the peer has a new life by then; then the application polls.
  [[nodiscard]] Duration next_try() const {
    return kPatience * max_rto_ + back_off_ + 2 * round_trip() + max_rto_ + look_;
  }
  // In the worst case a window is one packet wide: one round trip for each packet of the flow that
  // has the most of them. The flows themselves go on side by side.
  [[nodiscard]] Duration through_flows() const {
    std::uint64_t most = 0;
    for (const auto& [flow, packets] : packets_) {
      most = std::max(most, packets);
    }
    return static_cast<std::int64_t>(most) * round_trip();
  }
  // All bytes for the host that gets the most, one packet after the other.
  [[nodiscard]] Duration through_ports() const {
    Bytes most = 0;
    for (const auto& [host, bytes] : bytes_into_) {
      most = std::max(most, bytes);
    }
    return port_time(most);
  }
  // Each poll of an application posts at least half of an endpoint's receives, and takes as many
  // completions as there may be.
  [[nodiscard]] Duration for_receives() const {
    Duration longest{};
    for (const auto& [endpoint, count] : messages_) {
      const HostPlan& host = plan_.hosts[endpoint.first];
      const std::uint32_t at_a_time = std::max(
          1U,
          std::min(host.endpoints[endpoint.second].receive_depth / 2, host.engine.max_completions));
      longest = std::max(
          longest, static_cast<std::int64_t>(count / at_a_time) * (host.poll_interval + back_off_));
    }
    return longest;
  }
  // A responder that is busy refuses a read, which is tried again after its back-off.
  [[nodiscard]] Duration for_responders() const {
    Duration longest{};
    for (const auto& [host, count] : reads_) {
      const srd::EngineConfig& engine = plan_.hosts[host].engine;
      const std::uint32_t at_a_time = std::min(engine.max_reads_per_peer, engine.max_work_requests);
      longest = std::max(longest,
                         static_cast<std::int64_t>(count / at_a_time) * (back_off_ + round_trip()));
    }
    return longest;
  }

  const Plan& plan_;
  std::uint16_t paths_ = 0;
  Duration ack_delay_{};
  Duration max_rto_{};
  Duration back_off_{};
  Duration look_{};     // until the laziest application polls
  Duration give_up_{};  // until a peer that never answers is given up
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> packets_;   // from, to
  std::map<std::uint32_t, Bytes> bytes_into_;                                  // by host
  std::map<std::uint32_t, std::uint32_t> reads_;                               // by responder
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> messages_;  // host, endpoint
};

}  // namespace

Duration longest_wait(const Plan& plan, const std::deque<PostedRequest>& requests) {
  Wait wait{plan};
  for (const PostedRequest& request : requests) {
    if (request.state == PostedRequest::State::open) {
      wait.add(request);
    }
  }
  return wait.longest();
}

}  // namespace weft::swarm
