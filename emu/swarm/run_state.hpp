// Owns the state of one swarm run; run.cpp drives it, run_steps.cpp carries out the steps of the
// plan, run_requests.cpp posts the applications' work.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "emu/swarm/fairness.hpp"
#include "emu/swarm/hostile.hpp"
#include "emu/swarm/judge.hpp"
#include "emu/swarm/run.hpp"
#include "emu/swarm/world_names.hpp"

namespace weft::swarm {

// Used once: construct, finish(). Whatever it does goes through the VirtualWorld, whose clock moves
// only in advance_to(); so a plan determines every packet.
class Run {
 public:
  Run(const Plan& plan, const Trace& trace);
  RunOutcome finish();

 private:
  // --- Time
  void advance_to(TimePoint when);
  void let_applications_act();
  void poll(std::uint32_t host);
  void receive_used(std::uint32_t host, const srd::Completion& completion);
  // --- Steps
  void perform(const Step& step);
  void perform_on_application(const Step& step);
  void perform_on_host(const Step& step);
  void perform_on_network(const Step& step);
  void request(const Step& step);
  [[nodiscard]] bool choose_place(const Step& step, PostedRequest& r, std::uint64_t& address);
  [[nodiscard]] bool post(const Step& step, PostedRequest& r, std::uint64_t address);
  void post_receives(std::uint32_t host, std::uint32_t endpoint, std::uint32_t count);
  void replenish(std::uint32_t host);
  void endpoint_comes(std::uint32_t host, std::uint32_t endpoint);
  void endpoint_goes(std::uint32_t host, std::uint32_t endpoint);
  void stop(std::uint32_t host);
  void start(std::uint32_t host);
  void refresh_paths(std::uint32_t host);
  // --- Watching
  void watch_delivery(std::uint32_t host, const VirtualNetwork::InFlight& packet);
  void watch_network(TimePoint when, NetworkEvent event, const VirtualNetwork::InFlight& packet);
  void check_conservation();
  void note(const std::string& line);
  // --- The end
  void heal();
  void wait_for_everything(const char* phase);
  void final_round(bool strict);
  void wait_for_silence();

  [[nodiscard]] Process& process(std::uint32_t host) { return processes_[host].back(); }
  [[nodiscard]] bool is_up(std::uint32_t host) const { return world_.is_up(host); }
  [[nodiscard]] bool good() const { return judge_.verdict().empty(); }

  const Plan& plan_;
  const Trace& trace_;
  VirtualWorld world_;
  History history_;
  std::vector<std::deque<Process>> processes_;
  Judge judge_;
  Fairness fairness_;
  Attacker attacker_;
  Digest digest_;
  RunOutcome outcome_;
  TimePoint start_;
  // By host.
  std::vector<TimePoint> next_poll_;
  std::vector<bool> paused_;
  std::vector<std::vector<bool>> dead_paths_;
  std::vector<bool> without_path_;
  // After heal(): endpoints that posted no receives of themselves do so too, or senders would wait
  // for ever.
  bool replenish_all_ = false;
};

}  // namespace weft::swarm
