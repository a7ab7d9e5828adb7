// Owns the hosts, the network between them, and what programs do. The order of all that happens
// follows from the seed alone: one thread, one clock, and hosts in the order of their numbers.
#include <algorithm>

#include "tests/sim/roce_cm_swarm_run.hpp"

namespace weft::roce::cm {
namespace {

// A run that takes more has managers that answer each other without end.
constexpr std::uint32_t kMaxSteps = 400'000;

}  // namespace

// --- The world

void Swarm::start(std::uint32_t number) {
  SwarmHost& host = hosts_[number];
  Config config;
  config.nics.push_back(
      {.guid = 0x505400FFFE000001U + number, .attachment = static_cast<std::uint8_t>(number + 1)});
  config.addresses.push_back({address_of(number), 0, 0});
  // Another one for each life, as a process that starts anew has it.
  config.seed = rng_.next();
  config.max_ids = plan_.max_ids;
  config.max_outgoing = plan_.max_outgoing;
  ++host.life;
  host.claims = std::make_unique<Claims>();
  host.manager = std::make_unique<Manager>(config, *host.claims, reachability_);
  listen(number, false);
  listen(number, true);
}

void Swarm::kill(std::uint32_t number) {
  // As a process that is killed: nobody says good-bye, and the peers have to find out.
  SwarmHost& host = hosts_[number];
  host.manager.reset();
  host.parties.clear();
  host.requests.clear();
  host.listeners[0] = host.listeners[1] = kNobody;
}

TimePoint Swarm::next_moment() const {
  TimePoint next = flights_.empty() ? kNever : flights_.begin()->first;
  if (!connects_.empty()) {
    next = std::min(next, connects_.back());
  }
  for (const SwarmHost& host : hosts_) {
    next = std::min({next, host.dies_at, host.returns_at});
    if (host.manager != nullptr) {
      next = std::min(next, host.manager->next_timeout());
      for (const auto& [handle, party] : host.parties) {
        next = std::min(next, parties_[party].act_at);
      }
    }
  }
  return next;
}

void Swarm::run_until(TimePoint end) {
  settle();
  while (outcome_.failure.empty()) {
    const TimePoint next = next_moment();
    if (next == kNever || next > end) {
      break;
    }
    if (++steps_ > kMaxSteps) {
      return condemn("somebody never comes to rest");
    }
    now_ = std::max(now_, next);
    deliver();
    for (std::uint32_t host = 0; host < hosts_.size(); ++host) {
      live(host);
    }
    while (!connects_.empty() && connects_.back() <= now_) {
      connects_.pop_back();
      begin(rng_.below(plan_.hosts), rng_.below(plan_.hosts));
    }
    settle();
  }
  now_ = end == kNever ? now_ : std::max(now_, end);
}

void Swarm::live(std::uint32_t number) {
  SwarmHost& host = hosts_[number];
  if (host.dies_at <= now_) {
    host.dies_at = kNever;
    kill(number);
  }
  if (host.returns_at <= now_) {
    host.returns_at = kNever;
    start(number);
  }
  if (host.manager == nullptr) {
    return;
  }
  host.manager->on_timeout(now_);
  if (host.manager->next_timeout() <= now_) {
    // It would be due for ever, and whoever waits for it would spin.
    condemn("a deadline has passed and stays");
  }
  // Collected first, because act() adds parties to the map and takes them out.
  std::vector<std::uint32_t> due;
  for (const auto& [handle, party] : host.parties) {
    if (parties_[party].act_at <= now_) {
      due.push_back(party);
    }
  }
  for (const std::uint32_t party : due) {
    act(party);
  }
}

// What is ready leaves, and events are heard, until there are no more.
void Swarm::settle() {
  for (std::uint32_t host = 0; host < hosts_.size(); ++host) {
    Manager* const manager = hosts_[host].manager.get();
    // A message to an id of the same manager comes back as an event, and a program that hears an
    // event may have more to say.
    for (bool more = manager != nullptr; more && outcome_.failure.empty();) {
      more = false;
      for (Outgoing out; manager->next_mad(now_, out); more = true) {
        send(out);
      }
      for (Event event; manager->next_event(event); more = true) {
        hear(host, event);
      }
    }
  }
}

void Swarm::send(const Outgoing& message) {
  ++outcome_.messages;
  const bool well = healed();
  if (!well && rng_.chance(plan_.lose)) {
    return;
  }
  for (int copies = !well && rng_.chance(plan_.repeat) ? 2 : 1; copies > 0; --copies) {
    const bool late = !well && rng_.chance(plan_.late);
    // So late that who asked may have asked again, or given up.
    const Duration jitter = late ? seconds{8} : plan_.jitter;
    const auto more = rng_.between(0, static_cast<std::uint64_t>(jitter.count()));
    flights_.emplace(now_ + plan_.delay + Duration{static_cast<std::int64_t>(more)}, message);
  }
}

void Swarm::deliver() {
  while (!flights_.empty() && flights_.begin()->first <= now_) {
    const Outgoing message = flights_.begin()->second;
    flights_.erase(flights_.begin());
    for (std::uint32_t host = 0; host < hosts_.size(); ++host) {
      // What comes to a dead host is lost; its next life gets what is still under way, and has to
      // sort it out.
      if (message.to == address_of(host) && hosts_[host].manager != nullptr) {
        hosts_[host].manager->on_mad(now_, message.from, message.to, message.mad);
      }
    }
  }
}

Duration Swarm::thought() {
  if (healed()) {
    return milliseconds{rng_.below(1000)};
  }
  return Duration{static_cast<std::int64_t>(
      rng_.between(0, static_cast<std::uint64_t>(plan_.longest_thought.count())))};
}

// --- Programs

std::uint32_t Swarm::enlist(Party party) {
  const auto number = static_cast<std::uint32_t>(parties_.size());
  party.life = hosts_[party.host].life;
  if (!hosts_[party.host].parties.emplace(party.id.value(), number).second) {
    condemn(party, "its handle is still another's");
  }
  parties_.push_back(party);
  return number;
}

void Swarm::listen(std::uint32_t number, bool datagram) {
  SwarmHost& host = hosts_[number];
  const auto id = host.manager->create(datagram ? PortSpace::udp : PortSpace::tcp,
                                       datagram ? Transport::ud : Transport::rc);
  if (!id) {
    return;
  }
  Party party;
  party.host = number;
  party.id = *id;
  party.role = Party::Role::listener;
  party.datagram = datagram;
  // A listener that acts closes, so that a request may meet a port at which nobody listens.
  party.act_at = plan_.listeners_come_and_go ? now_ + seconds{1 + rng_.below(30)} : kNever;
  if (host.manager->bind(*id, {srd::Address::v4(0, 0, 0, 0), kPort}) != 0 ||
      host.manager->listen(*id, plan_.backlog) != 0) {
    return condemn(party, "a port that is free cannot be listened at");
  }
  host.listeners[datagram ? 1 : 0] = enlist(party);
}

void Swarm::begin(std::uint32_t number, std::uint32_t to) {
  SwarmHost& host = hosts_[number];
  if (host.manager == nullptr) {
    return;
  }
  const bool datagram = rng_.chance(0.2);
  const auto id = host.manager->create(datagram ? PortSpace::udp : PortSpace::tcp,
                                       datagram ? Transport::ud : Transport::rc);
  if (!id) {
    return;
  }
  Party party;
  party.host = number;
  party.id = *id;
  party.datagram = datagram;
  party.qpn = next_qpn_++;
  if (rng_.chance(plan_.same_pairs)) {
    // As programs do that keep their queue pairs and connect them anew.
    for (const Party& old : parties_) {
      if (old.host == number && old.gone && old.qpn != 0 && !old.datagram) {
        party.qpn = old.qpn;
        party.reuses = true;
      }
    }
  }
  enlist(party);
  if (const int error = host.manager->resolve_address(*id, {}, {address_of(to), kPort});
      error != 0) {
    condemn(party, "its address cannot be resolved: " + std::to_string(error));
  }
}

void Swarm::destroy(Party& party) {
  SwarmHost& host = hosts_[party.host];
  if (party.role == Party::Role::listener) {
    host.listeners[party.datagram ? 1 : 0] = kNobody;
    // Requests that were not fetched go with it.
    const auto listener = host.parties.at(party.id.value());
    for (Party& child : parties_) {
      if (child.listener == listener && child.host == party.host && is_alive(child) &&
          !child.fetched) {
        destroy(child);
      }
    }
  }
  host.manager->destroy(now_, party.id);
  host.parties.erase(party.id.value());
  party.left_at = std::min(party.left_at, now_);
  party.gone = true;
  party.act_at = kNever;
}

void Swarm::act(std::uint32_t number) {
  Party& party = parties_[number];
  if (!is_alive(party)) {
    return;
  }
  party.act_at = kNever;
  switch (party.role) {
    case Party::Role::listener:
      return act_as_listener(party);
    case Party::Role::active:
      return act_as_active(party);
    case Party::Role::passive:
      return act_as_passive(party);
  }
}

void Swarm::act_as_listener(Party& party) {
  if (healed()) {
    return;
  }
  const std::uint32_t host = party.host;
  const bool datagram = party.datagram;
  destroy(party);
  // Else the port stays closed, and who asks there has to be rejected.
  if (rng_.chance(0.7)) {
    listen(host, datagram);
  }
}

void Swarm::act_as_active(Party& party) {
  if (!healed() && rng_.chance(plan_.destroys)) {
    return destroy(party);
  }
  if (party.has_heard(bit(EventKind::disconnected)) || party.parted) {
    if (!party.parted) {
      party.parted = true;
      party.left_at = now_;
      (void)manager(party).disconnect(now_, party.id);
    }
    return destroy(party);
  }
  if (party.rejected || party.has_heard(bit(EventKind::rejected) | bit(EventKind::unreachable))) {
    return destroy(party);
  }
  if (party.has_heard(bit(EventKind::connect_response)) && !party.accepted) {
    if (!healed() && rng_.chance(plan_.rejects)) {
      party.rejected = manager(party).reject(now_, party.id, Reason::consumer, {}) == 0;
      party.act_at = now_ + thought();
      return;
    }
    return accept(party);
  }
  if (party.accepted && !party.datagram) {
    act_connected(party);
  }
}

void Swarm::act_as_passive(Party& party) {
  if (!party.fetched) {
    party.fetched = true;
    if (party.listener != kNobody && is_alive(parties_[party.listener])) {
      manager(party).took_request(parties_[party.listener].id);
    }
  }
  if (!healed() && rng_.chance(plan_.destroys)) {
    return destroy(party);
  }
  if (!party.accepted && !party.rejected && !party.has_heard(kEnds)) {
    if (!healed() && rng_.chance(plan_.rejects)) {
      party.rejected = true;
      if (manager(party).reject(now_, party.id, Reason::consumer, {}) != 0) {
        condemn(party, "a request that waits cannot be rejected");
      }
      party.act_at = now_ + thought();
      return;
    }
    return accept(party);
  }
  if (party.rejected || party.has_heard(kEnds) || party.parted) {
    if (!party.parted && party.has_heard(bit(EventKind::disconnected))) {
      party.parted = true;
      party.left_at = now_;
      (void)manager(party).disconnect(now_, party.id);
    }
    return destroy(party);
  }
  if (party.has_heard(bit(EventKind::established))) {
    act_connected(party);
  }
}

// Some part, some stay.
void Swarm::act_connected(Party& party) {
  if (healed() || rng_.chance(0.4)) {
    return;
  }
  party.parted = true;
  party.left_at = now_;
  if (const int error = manager(party).disconnect(now_, party.id); error != 0) {
    condemn(party, "it cannot part: " + std::to_string(error));
  }
  if (rng_.chance(0.5)) {
    party.act_at = now_ + seconds{rng_.below(20)};
  }
}

void Swarm::accept(Party& party) {
  ConnectParameters parameters;
  parameters.qpn = party.qpn;
  parameters.responder_resources = parameters.initiator_depth = 1;
  parameters.data.size = 4;
  const std::uint32_t asker =
      party.role == Party::Role::passive ? party.partner : parties_[party.partner].partner;
  for (int i = 0; i < 4; ++i) {
    parameters.data.bytes[static_cast<std::size_t>(i)] = static_cast<std::byte>(asker >> (8 * i));
  }
  const bool answers = party.role == Party::Role::passive;
  const int error = manager(party).accept(now_, party.id, answers ? &parameters : nullptr);
  if (error == 0) {
    party.accepted = true;
    party.accepted_at = now_;
    parties_[party.partner].granted = true;
    party.act_at = now_ + seconds{rng_.below(60)};
  } else if (answers) {
    // A request can be withdrawn while the program thinks; then it has heard of it.
    condemn(party, "a request that waits cannot be accepted: " + std::to_string(error));
  }
}

}  // namespace weft::roce::cm
