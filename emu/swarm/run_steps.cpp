// Owns the steps of a plan that happen to applications, hosts and the network.
#include <algorithm>

#include "emu/swarm/run_state.hpp"

namespace weft::swarm {

// Act lists the kinds of acts one behind the other. An application acts only if its host is up and
// not paused, which a plan does not know in advance: otherwise the step is left out.
void Run::perform(const Step& step) {
  note("--- " + to_string(step));
  if (step.act >= Act::inject_random) {
    attacker_.act(world_.now(), step, world_.network());
  } else if (step.act >= Act::set_loss) {
    perform_on_network(step);
  } else if (step.act >= Act::restart) {
    perform_on_host(step);
  } else if (is_up(step.host) && !paused_[step.host]) {
    perform_on_application(step);
  }
}

void Run::perform_on_application(const Step& step) {
  Process& p = process(step.host);
  srd::Engine& engine = world_.engine(step.host);
  const srd::Qpn qpn = plan_.hosts[step.host].endpoints[step.endpoint].qpn;
  switch (step.act) {
    case Act::send:
    case Act::write:
    case Act::read:
      return request(step);
    case Act::post_receives:
      poll(step.host);  // an application polls before it posts receives
      return post_receives(step.host, step.endpoint, step.length);
    case Act::flush: {
      const auto peer =
          engine.peer(address_of_host(step.peer), plan_.hosts[step.peer].engine.attachment);
      if (peer && p.open[step.endpoint]) {
        history_.flushed(world_.now(), step.host, step.endpoint, step.peer);
        engine.flush(*peer, qpn);
        fairness_.withdrawn(step.host);
      }
      return;
    }
    case Act::close_endpoint:
      if (p.open[step.endpoint]) {
        endpoint_goes(step.host, step.endpoint);
        engine.close_endpoint(qpn);
        fairness_.withdrawn(step.host);
      }
      return;
    case Act::open_endpoint:
      if (!p.open[step.endpoint]) {
        if (std::string error = p.open_endpoint(engine, step.endpoint); !error.empty()) {
          judge_.condemn(error);
        }
        endpoint_comes(step.host, step.endpoint);
        poll(step.host);
      }
      return;
    case Act::stop_receiving:
    case Act::start_receiving:
      if (p.open[step.endpoint]) {
        const bool on = step.act == Act::start_receiving;
        p.receiving[step.endpoint] = on;
        engine.set_receiving(qpn, on);
        if (on) {
          history_.endpoint_available(world_.now(), step.host, step.endpoint);
        } else {
          history_.endpoint_unavailable(step.host, step.endpoint);
        }
      }
      return;
    case Act::replace_region:
      if (std::string error = p.replace_region(engine); !error.empty()) {
        judge_.condemn(error);
      }
      return;
    default:
      return;
  }
}

// The endpoint has been opened, and has no receives yet.
void Run::endpoint_comes(std::uint32_t host, std::uint32_t endpoint) {
  history_.endpoint_available(world_.now(), host, endpoint);
  history_.receives(world_.now(), host, endpoint, 0);
}

// A closed endpoint flushes its requests to every peer. The entry for the host itself stands for
// the closing (History::was_closed()).
void Run::endpoint_goes(std::uint32_t host, std::uint32_t endpoint) {
  process(host).open[endpoint] = false;
  process(host).receives_posted[endpoint] = 0;
  history_.endpoint_unavailable(host, endpoint);
  history_.receives(world_.now(), host, endpoint, 0);
  for (std::uint32_t peer = 0; peer < plan_.hosts.size(); ++peer) {
    history_.flushed(world_.now(), host, endpoint, peer);
  }
}

void Run::perform_on_host(const Step& step) {
  switch (step.act) {
    case Act::restart:
      stop(step.host);
      return start(step.host);
    case Act::crash:
      return stop(step.host);
    case Act::start:
      return start(step.host);
    case Act::pause:
      if (is_up(step.host) && !paused_[step.host]) {
        paused_[step.host] = true;
        history_.mute(world_.now(), step.host, true);
        world_.pause(step.host);
        fairness_.forget(step.host);
      }
      return;
    case Act::resume:
      if (paused_[step.host]) {
        paused_[step.host] = false;
        history_.mute(world_.now(), step.host, false);
        world_.resume(step.host);
      }
      return;
    default:
      return;
  }
}

void Run::stop(std::uint32_t host) {
  if (!is_up(host)) {
    return;
  }
  poll(host);  // what had completed before the crash is still judged
  if (paused_[host]) {
    paused_[host] = false;
    history_.mute(world_.now(), host, false);
  }
  history_.mute(world_.now(), host, true);
  process(host).alive = false;
  process(host).died = world_.now();
  world_.crash(host);
  fairness_.forget(host);
  history_.ended(host);
  judge_.orphan(host);
}

// A new process on the host, with the next incarnation; History hears of its endpoints before it
// can receive.
void Run::start(std::uint32_t host) {
  if (is_up(host)) {
    return;
  }
  history_.mute(world_.now(), host, false);
  for (std::uint32_t e = 0; e < plan_.hosts[host].endpoints.size(); ++e) {
    endpoint_comes(host, e);
  }
  const auto incarnation = static_cast<std::uint32_t>(processes_[host].size());
  processes_[host].emplace_back(plan_.hosts[host], host, incarnation, world_.now());
  world_.start(host, process(host).engine_config());
  if (std::string error = process(host).set_up(world_.engine(host)); !error.empty()) {
    judge_.condemn(error);
  }
  replenish(host);
}

// A host all of whose paths are dead is as silent as one that is down.
void Run::refresh_paths(std::uint32_t host) {
  const auto& dead = dead_paths_[host];
  const bool none = std::all_of(dead.begin(), dead.end(), [](bool d) { return d; });
  if (none != without_path_[host]) {
    without_path_[host] = none;
    history_.mute(world_.now(), host, none);
  }
}

void Run::perform_on_network(const Step& step) {
  VirtualNetwork& network = world_.network();
  LinkModel& link = network.link();
  switch (step.act) {
    case Act::set_loss:
      link.loss = step.value;
      return;
    case Act::set_burst:
      link.burst = step.value;
      return;
    case Act::set_duplicate:
      link.duplicate = step.value;
      return;
    case Act::set_reorder:
      link.reorder = step.value;
      return;
    case Act::set_corrupt:
      link.corrupt = step.value;
      return;
    case Act::set_trim:
      link.trim = step.value;
      return;
    case Act::set_mark:
      link.mark = step.value;
      return;
    case Act::set_jitter:
      link.jitter = Duration{
          static_cast<std::int64_t>(step.value * 3 * static_cast<double>(link.latency.count()))};
      return;
    case Act::partition:
      network.partition(step.host, step.peer);
      return history_.cut(world_.now(), step.host, step.peer, true);
    case Act::rejoin:
      network.rejoin(step.host, step.peer);
      return history_.cut(world_.now(), step.host, step.peer, false);
    case Act::kill_path:
    case Act::revive_path:
      if (step.path < dead_paths_[step.host].size()) {
        const bool dead = step.act == Act::kill_path;
        dead ? network.kill_path(step.host, step.path) : network.revive_path(step.host, step.path);
        dead_paths_[step.host][step.path] = dead;
        refresh_paths(step.host);
      }
      return;
    default:
      return;
  }
}

}  // namespace weft::swarm
