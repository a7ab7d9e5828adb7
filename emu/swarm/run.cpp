// Owns carrying out a plan: time, watching, and the end of a run.
#include "emu/swarm/run.hpp"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "emu/swarm/patience.hpp"
#include "emu/swarm/run_state.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::swarm {

using namespace std::chrono_literals;
using Kind = srd::Completion::Kind;

Run::Run(const Plan& plan, const Trace& trace)
    : plan_(plan),
      trace_(trace),
      world_(mix64(plan.seed ^ 0x6E65)),
      history_(static_cast<std::uint32_t>(plan.hosts.size())),
      processes_(plan.hosts.size()),
      judge_(plan, history_, processes_),
      fairness_(plan),
      attacker_(mix64(plan.seed ^ 0xA77A)),
      start_(world_.now()) {
  world_.network().link() = plan.link;
  for (std::uint32_t i = 0; i < plan.hosts.size(); ++i) {
    processes_[i].emplace_back(plan.hosts[i], i, 0, world_.now());
    world_.add_host(process(i).engine_config());
    next_poll_.push_back(start_ + plan.hosts[i].poll_interval);
    paused_.push_back(false);
    dead_paths_.emplace_back(plan.hosts[i].engine.paths, false);
    without_path_.push_back(false);
    if (std::string error = process(i).set_up(world_.engine(i)); !error.empty()) {
      judge_.condemn(error);
    }
    for (std::uint32_t e = 0; e < plan.hosts[i].endpoints.size(); ++e) {
      endpoint_comes(i, e);
    }
    replenish(i);
  }
  world_.on_delivery([this](std::uint32_t host, const VirtualNetwork::InFlight& packet) {
    watch_delivery(host, packet);
  });
  world_.network().observe(
      [this](TimePoint when, NetworkEvent event, const VirtualNetwork::InFlight& packet) {
        watch_network(when, event, packet);
      });
}

// --- Watching

void Run::note(const std::string& line) {
  if (!trace_) {
    return;
  }
  std::ostringstream stamped;
  stamped << std::setw(12) << nanoseconds(world_.now() - start_) << " ns  " << line;
  trace_(stamped.str());
}

void Run::watch_network(TimePoint when, NetworkEvent event,
                        const VirtualNetwork::InFlight& packet) {
  static constexpr const char* kEvents[] = {"sent",      "LOST",       "arrives", "TRIMMED",
                                            "CORRUPTED", "DUPLICATED", "INJECTED"};
  if (event == NetworkEvent::sent) {
    attacker_.overhear(packet);
  }
  fairness_.saw(when, event, packet);
  if (packet.from < plan_.hosts.size() && packet.to < plan_.hosts.size()) {
    if (event == NetworkEvent::sent &&
        matches(Packet::data | Packet::probe | Packet::credit_request, kind_of(packet.bytes))) {
      history_.asked(when, packet.from, packet.to);
    } else if (event == NetworkEvent::lost) {
      history_.lost(packet.from, packet.to, packet.path.value());
    } else if (event == NetworkEvent::delivered && packet.genuine) {
      history_.arrived(when, packet.from, packet.to);
    }
  }
  if (trace_) {
    const auto name = [](std::uint32_t host) {
      return host == VirtualNetwork::kNobody ? std::string{"?"} : std::to_string(host);
    };
    note(name(packet.from) + "->" + name(packet.to) + " " +
         kEvents[static_cast<std::size_t>(event)] + " " + describe(packet.bytes));
  }
}

// An intact packet of a host reaches another one: what does that process know from now on? Only
// packets that the engine accepts teach it something, those for its own life or for an unknown one.
void Run::watch_delivery(std::uint32_t host, const VirtualNetwork::InFlight& packet) {
  srd::wire::CommonHeader h;
  const std::uint32_t from = world_.network().host_at(packet.source);
  if (!packet.genuine || from == VirtualNetwork::kNobody || !srd::wire::load(packet.bytes, h)) {
    return;
  }
  const Packet kind = kind_of(packet.bytes);
  const std::uint32_t my_life = life_of(plan_.hosts[host], process(host).incarnation()).value();
  std::uint32_t sender = 0;  // the incarnation that has sent it
  while (life_of(plan_.hosts[from], sender).value() != h.source_life.value()) {
    if (++sender >= processes_[from].size()) {
      return;
    }
  }
  const std::uint32_t named = h.destination_life.value();
  if (named == 0 && matches(Packet::data, kind)) {
    history_.first_contact(from, sender, host, process(host).incarnation());
  }
  if (named != 0 && named != my_life) {
    return;
  }
  if (kind == Packet::stale_life) {
    history_.told_of_life(host, process(host).incarnation(), from, sender);
  } else {
    history_.heard(world_.now(), host, process(host).incarnation(), from, sender,
                   kind == Packet::ack);
  }
}

// The network itself is under test, too: each packet that came into it has left it in one way, or
// is under way.
void Run::check_conservation() {
  const NetworkCounts& c = world_.network().counts();
  if (c.sent + c.injected + c.duplicated != c.delivered + c.lost + world_.network().in_flight()) {
    judge_.condemn("the network has lost count of its packets");
  }
  if (!world_.broken().empty()) {
    judge_.condemn(world_.broken());
  }
}

// --- Time

// The world moves from event to event, but not beyond the next poll of a lazy host. After each step
// all rules are checked that can be checked at any time: a violation is found at its own time.
void Run::advance_to(TimePoint when) {
  while (good()) {
    TimePoint limit = when;
    for (std::uint32_t i = 0; i < plan_.hosts.size(); ++i) {
      if (plan_.hosts[i].poll_interval > Duration::zero()) {
        limit = std::min(limit, next_poll_[i]);
      }
    }
    const bool more = world_.step(limit);
    fairness_.check_departures(world_.now());
    if (!fairness_.verdict().empty()) {
      judge_.condemn(fairness_.verdict());
    }
    let_applications_act();
    check_conservation();
    if (!more && world_.now() >= when) {
      return;
    }
  }
}

// A host without a poll interval polls after each event.
void Run::let_applications_act() {
  for (std::uint32_t i = 0; i < plan_.hosts.size(); ++i) {
    const Duration interval = plan_.hosts[i].poll_interval;
    if (interval > Duration::zero()) {
      if (next_poll_[i] > world_.now()) {
        continue;
      }
      next_poll_[i] = world_.now() + interval;
    }
    if (is_up(i) && !paused_[i]) {
      poll(i);
    }
  }
}

void Run::poll(std::uint32_t host) {
  srd::Completion batch[8];
  srd::Engine& engine = world_.engine(host);
  std::uint64_t total = 0;
  std::uint64_t flushed_receives = 0;
  for (std::size_t n = engine.poll(batch); n > 0 && good(); n = engine.poll(batch)) {
    for (std::size_t i = 0; i < n; ++i) {
      const srd::Completion& c = batch[i];
      digest_.add((std::uint64_t{host} << 56) ^ c.cookie ^
                  (static_cast<std::uint64_t>(c.status) << 48));
      digest_.add(static_cast<std::uint64_t>(nanoseconds(world_.now())) ^
                  (std::uint64_t{c.length} << 40));
      if (c.consumed_receive) {
        receive_used(host, c);
      }
      note("host " + std::to_string(host) + " completion: cookie " + std::to_string(c.cookie) +
           " kind " + std::to_string(static_cast<int>(c.kind)) + " " + srd::to_string(c.status) +
           " length " + std::to_string(c.length));
      outcome_.completed_ok += c.status == srd::Status::ok ? 1 : 0;
      // A closed endpoint gives back all of its receives: their depth is the bound of these.
      flushed_receives += c.kind == Kind::receive && c.status == srd::Status::flushed ? 1 : 0;
      // The completion of a flushed receive has no peer.
      const bool of_somebody = c.status == srd::Status::ok;
      judge_.completed(world_.now(), host, c,
                       of_somebody ? world_.network().host_at(engine.key_of(c.peer).address)
                                   : VirtualNetwork::kNobody);
    }
    total += n;
    // max_completions of requests, and as many of receives.
    if (total - flushed_receives > 2 * plan_.hosts[host].engine.max_completions) {
      judge_.condemn("more completions wait than the configuration allows");
    }
  }
  judge_.polled(host);
  replenish(host);
}

// Keeps the count of posted receives as the application knows it, which is later than the engine.
// What is flushed was counted out when its endpoint was closed (endpoint_goes()).
void Run::receive_used(std::uint32_t host, const srd::Completion& completion) {
  if ((completion.kind != Kind::receive && completion.kind != Kind::receive_write_imm) ||
      completion.status == srd::Status::flushed) {
    return;
  }
  for (std::uint32_t e = 0; e < plan_.hosts[host].endpoints.size(); ++e) {
    std::uint32_t& posted = process(host).receives_posted[e];
    if (plan_.hosts[host].endpoints[e].qpn == completion.endpoint && posted > 0) {
      history_.receives(world_.now(), host, e, --posted);
    }
  }
}

// --- The end

// Ends every fault, and makes every host and endpoint work again. From here on all that is open
// must come to an end within a known time.
void Run::heal() {
  note("--- heal");
  world_.network().heal();
  world_.network().link().jitter = plan_.link.jitter;
  for (std::uint32_t i = 0; i < plan_.hosts.size(); ++i) {
    Step step;
    step.host = static_cast<std::uint8_t>(i);
    step.act = Act::resume;
    perform_on_host(step);
    start(i);
    for (std::uint8_t e = 0; e < plan_.hosts[i].endpoints.size(); ++e) {
      step.endpoint = e;
      step.act = Act::open_endpoint;
      perform_on_application(step);
      step.act = Act::start_receiving;
      if (!process(i).receiving[e]) {
        perform_on_application(step);
      }
    }
  }
  history_.heal(world_.now());
  replenish_all_ = true;
  for (std::uint32_t i = 0; i < plan_.hosts.size(); ++i) {
    poll(i);
  }
}

// Until no request is open, or longest_wait() is over: so a request that hangs is found, and one
// that is only slow is not blamed.
void Run::wait_for_everything(const char* phase) {
  const TimePoint limit = world_.now() + longest_wait(plan_, judge_.requests());
  while (good() && judge_.open_requests() > 0) {
    if (world_.now() >= limit) {
      judge_.condemn(std::string{phase} + ": " + std::to_string(judge_.open_requests()) +
                     " requests never complete");
      return;
    }
    advance_to(std::min(
        limit, std::max(world_.now() + 20us, std::min(world_.next_event(), world_.now() + 1ms))));
  }
}

// After everything has healed, requests between any two hosts must succeed. The first such round is
// not strict: peers may still have to learn of each other's new lives.
void Run::final_round(bool strict) {
  const char* const phase = strict ? "after the end" : "after healing";
  std::vector<std::uint64_t> numbers;
  for (std::uint8_t from = 0; from < plan_.hosts.size(); ++from) {
    for (std::uint8_t to = 0; to < plan_.hosts.size(); ++to) {
      if (from == to) {
        continue;
      }
      const Act acts[] = {Act::send, Act::write, Act::read};
      for (const Act act : acts) {
        Step step;
        step.act = act;
        step.host = from;
        step.peer = to;
        step.immediate = act != Act::read;
        step.length = 24;
        step.random = from;
        const std::uint64_t before = judge_.last_cookie();
        request(step);
        if (judge_.last_cookie() == before) {  // no room until the others have ended
          wait_for_everything(phase);
          request(step);
        }
        if (judge_.last_cookie() > before) {
          numbers.push_back(judge_.last_cookie());
        }
      }
    }
  }
  wait_for_everything(phase);
  for (const std::uint64_t number : numbers) {
    const PostedRequest& r = judge_.requests()[number - 1];
    if (strict && good() && r.status != srd::Status::ok) {
      judge_.condemn("after everything has healed, " + to_string(r.step) + " ends with " +
                     srd::to_string(r.status));
    }
  }
}

// No request is open. Only probes of abandoned paths may still be under way: each path is probed
// within its interval, or when the answer to the last probe is overdue, and is used again after the
// answer. Strangers never answer, and are given up like any peer. After that, no packet may leave.
void Run::wait_for_silence() {
  if (!good()) {
    return;
  }
  Duration recovery{};
  Duration longest{};
  for (const HostPlan& host : plan_.hosts) {
    const srd::EngineConfig& engine = host.engine;
    recovery = std::max(recovery, std::max(engine.path_probe_interval, engine.max_rto) +
                                      2 * engine.base_rtt + engine.ack_delay);
    longest = std::max(longest, engine.peer_timeout + engine.max_rto);
  }
  const bool strangers = has_foreign_replays(plan_);
  world_.run_until(world_.now() + recovery + (strangers ? longest : Duration::zero()));
  for (std::uint32_t i = 0; i < plan_.hosts.size() && good() && !strangers; ++i) {
    const srd::Counters& counters = world_.engine(i).counters();
    if (counters.paths_recovered != counters.paths_abandoned) {
      judge_.condemn("host " + std::to_string(i) + " abandoned " +
                     std::to_string(counters.paths_abandoned) + " paths and took back " +
                     std::to_string(counters.paths_recovered));
    }
  }
  const std::uint64_t sent = world_.network().counts().sent;
  world_.run_until(world_.now() + longest);
  check_conservation();
  if (const std::uint64_t more = world_.network().counts().sent - sent; good() && more != 0) {
    judge_.condemn("nobody wants anything, and still " + std::to_string(more) + " packets leave");
  }
}

// Two parts: the steps of the plan until end_of_faults, in which a request may fail if there is a
// reason; then, with all faults gone, everything ends, all hosts reach each other, and silence
// falls. The first violation ends the run.
RunOutcome Run::finish() {
  for (const Step& step : plan_.steps) {
    advance_to(start_ + step.at);
    if (!good()) {
      break;
    }
    perform(step);
    let_applications_act();
  }
  if (good()) {
    advance_to(start_ + plan_.end_of_faults);
    heal();
    wait_for_everything("after healing");
    final_round(false);
    final_round(true);
    advance_to(world_.now() + 1ms + kMaxPollInterval);
    wait_for_silence();
  }
  if (good()) {
    judge_.check_at_the_end();
  }
  outcome_.failure = judge_.verdict();
  note("verdict: " + (outcome_.failure.empty() ? std::string{"clean"} : outcome_.failure));
  digest_.add(world_.network().digest().value());
  outcome_.digest = digest_.value();
  outcome_.packets = world_.network().counts().sent;
  outcome_.virtual_time = world_.now() - start_;
  return std::move(outcome_);
}

RunOutcome carry_out(const Plan& plan, const Trace& trace) { return Run(plan, trace).finish(); }

}  // namespace weft::swarm
