// Owns the text form of a plan, for people.
#include <array>
#include <sstream>

#include "emu/swarm/plan.hpp"

namespace weft::swarm {

const char* to_string(Act act) {
  // In the order of Act.
  static constexpr std::array<const char*, 33> kNames{
      "send",           "write",          "read",           "post_receives",   "flush",
      "close_endpoint", "open_endpoint",  "stop_receiving", "start_receiving", "replace_region",
      "restart",        "crash",          "start",          "pause",           "resume",
      "set_loss",       "set_burst",      "set_duplicate",  "set_reorder",     "set_corrupt",
      "set_trim",       "set_mark",       "set_jitter",     "partition",       "rejoin",
      "kill_path",      "revive_path",    "inject_random",  "inject_mutated",  "inject_truncated",
      "replay",         "replay_foreign", "stranger_speaks"};
  return kNames[static_cast<std::size_t>(act)];
}

std::string to_string(const Step& step) {
  // In the order of Flaw.
  static constexpr std::array<const char*, 9> kFlaws{
      "",           " bad_qpn",       " bad_qkey",  " bad_key", " stale_key", " wrong_domain",
      " no_access", " out_of_bounds", " straddling"};
  std::string out = std::string{to_string(step.act)} + " host " + std::to_string(step.host) +
                    " peer " + std::to_string(step.peer);
  if (step.act <= Act::read) {
    out += " endpoint " + std::to_string(step.endpoint) + "->" +
           std::to_string(step.peer_endpoint) + (step.immediate ? " imm" : "") +
           (step.phantom ? " phantom" : "") + " rnr " + std::to_string(step.rnr_retry) +
           kFlaws[static_cast<std::size_t>(step.flaw)];
  }
  if (step.length != 0 || step.act <= Act::read) {
    out += " length " + std::to_string(step.length);
  }
  if (step.value != 0) {
    out += " value " + std::to_string(step.value);
  }
  if (step.act == Act::kill_path || step.act == Act::revive_path) {
    out += " path " + std::to_string(step.path);
  }
  return out;
}

std::vector<std::string> describe(const Plan& plan) {
  std::vector<std::string> lines;
  std::ostringstream network;
  const LinkModel& l = plan.link;
  network << "network: latency " << l.latency.count() << " ns, skew " << l.path_skew.count()
          << " ns a path, jitter " << l.jitter.count() << " ns, rate " << l.rate.bits_per_second()
          << " b/s";
  lines.push_back(network.str());
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    const srd::EngineConfig& c = plan.hosts[i].engine;
    std::ostringstream host;
    host << "host " << i << ": " << c.path_selector << '/' << c.congestion_control << ", paths "
         << c.paths << ", mtu " << c.mtu_payload << ", window " << c.window_packets << ", requests "
         << c.max_work_requests << ", reads " << c.max_reads_per_peer << ", ack every "
         << int{c.ack_every} << " or " << c.ack_delay.count() << " ns, peer timeout "
         << c.peer_timeout.count() << " ns, rto " << c.min_rto.count() << " to "
         << c.max_rto.count() << " ns, base rtt " << c.base_rtt.count() << " ns"
         << (c.checksum ? "" : ", no checksum") << (c.trimming ? ", trimming" : "")
         << (c.receiver_credits ? ", credits" : "");
    if (c.forced_reorder != 0) {
      host << ", forced reorder " << c.forced_reorder;
    }
    if (plan.hosts[i].poll_interval > Duration::zero()) {
      host << ", polls every " << plan.hosts[i].poll_interval.count() << " ns";
    }
    for (const EndpointPlan& e : plan.hosts[i].endpoints) {
      host << "; endpoint " << e.qpn.value() << " depth " << e.receive_depth << " of "
           << e.receive_size << (e.unsolicited_immediate ? " unsolicited" : "")
           << (e.replenish ? "" : " starving");
    }
    lines.push_back(host.str());
  }
  return lines;
}

}  // namespace weft::swarm
