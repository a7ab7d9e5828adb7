// Owns the rules that no run may break. Each event that a manager tells is held against what its
// own program and the program at the other end have done; what should have been told and was not is
// found at the end of the run.
#include <algorithm>

#include "tests/sim/roce_cm_swarm_run.hpp"

namespace weft::roce::cm {
namespace {

// Requests and answers carry the number of the party that has asked as private data. This is how
// the rules know whose they are without a look into a manager.
std::uint32_t asker_of(const Event& event) {
  std::uint32_t asker = 0;
  for (std::size_t i = 4; i-- > 0;) {
    asker = asker << 8 | std::to_integer<std::uint32_t>(event.parameters.data.bytes[i]);
  }
  return asker;
}

}  // namespace

// --- Rules

// Whether that end may have ended the connection, or may never have known of it.
bool Swarm::has_left(std::uint32_t number) const {
  if (number == kNobody) {
    return true;
  }
  const Party& party = parties_[number];
  return !is_alive(party) || party.rejected || party.parted || party.has_heard(kEnds);
}

void Swarm::hear(std::uint32_t number, const Event& event) {
  SwarmHost& host = hosts_[number];
  const auto found = host.parties.find(event.id.value());
  if (found == host.parties.end()) {
    return condemn("an event tells host " + std::to_string(number) + " of an id that is gone");
  }
  if (event.kind == EventKind::connect_request) {
    return hear_request(number, event);
  }
  Party& party = parties_[found->second];
  if (party.has_heard(bit(event.kind))) {
    return condemn(
        party, "it hears event " + std::to_string(static_cast<unsigned>(event.kind)) + " twice");
  }
  switch (event.kind) {
    case EventKind::address_resolved:
      if (manager(party).resolve_route(party.id) != 0) {
        condemn(party, "its route cannot be resolved");
      }
      break;
    case EventKind::route_resolved: {
      ConnectParameters parameters;
      parameters.qpn = party.qpn;
      parameters.retry_count = parameters.rnr_retry_count = 7;
      parameters.responder_resources = parameters.initiator_depth = 1;
      parameters.data.size = 4;
      for (int i = 0; i < 4; ++i) {
        parameters.data.bytes[static_cast<std::size_t>(i)] =
            static_cast<std::byte>(found->second >> (8 * i));
      }
      party.asked = true;
      ++outcome_.asked;
      if (manager(party).connect(now_, party.id, parameters) != 0) {
        condemn(party, "it cannot ask for a connection");
      }
      if (rng_.chance(plan_.destroys)) {
        party.act_at = now_ + thought();  // it may give up early
      }
      break;
    }
    case EventKind::connect_response:
    case EventKind::established:
      hear_answer(party, event);
      break;
    default:
      hear_end(party, event);
  }
  party.heard |= bit(event.kind);
}

void Swarm::hear_request(std::uint32_t number, const Event& event) {
  SwarmHost& host = hosts_[number];
  const std::uint32_t listener = host.parties.at(event.id.value());
  const std::uint32_t asker = asker_of(event);
  Party party;
  party.host = number;
  party.id = event.connection;
  party.role = Party::Role::passive;
  party.listener = listener;
  party.partner = asker;
  party.qpn = next_qpn_++;
  party.act_at = now_ + thought();
  if (asker >= parties_.size() || !parties_[asker].asked ||
      parties_[listener].role != Party::Role::listener) {
    return condemn(party, "a request comes that nobody has made");
  }
  party.datagram = parties_[asker].datagram;
  if (!party.datagram && event.parameters.qpn != parties_[asker].qpn) {
    return condemn(party, "the request names another queue pair");
  }
  // This one, and those that the program has not fetched.
  std::uint32_t waiting = 1;
  for (const auto& [handle, other] : host.parties) {
    waiting += parties_[other].listener == listener && !parties_[other].fetched ? 1 : 0;
  }
  if (waiting > plan_.backlog) {
    condemn(party, "more requests wait than there is room for");
  }
  const std::uint32_t own = enlist(party);
  // A datagram's service is asked for again if the program has gone before its answer has come.
  const std::uint32_t before = parties_[asker].partner;
  const bool again = !host.requests.insert(asker).second;
  if (again && (!party.datagram || is_alive(parties_[before]))) {
    return condemn(parties_[asker], "its request is heard twice");
  }
  parties_[asker].reheard = before != kNobody;
  parties_[asker].partner = own;
}

void Swarm::hear_answer(Party& party, const Event& event) {
  const bool active = party.role == Party::Role::active;
  const bool response = event.kind == EventKind::connect_response;
  if (party.partner == kNobody || party.has_heard(kEnds) || (active && !party.asked) ||
      response != (active && !party.datagram)) {
    return condemn(party, "an answer comes that cannot be");
  }
  const Party& partner = parties_[party.partner];
  if (active ? !party.granted : !partner.accepted) {
    return condemn(party, "it is answered, but nobody has accepted");
  }
  if (active && asker_of(event) != partner.partner) {
    return condemn(party, "the answer is another's");
  }
  if (response) {
    compare_numbers(party);
    party.act_at = now_ + thought();
  } else {
    ++outcome_.connected;
    party.act_at = now_ + seconds{rng_.below(60)};
  }
}

// Each queue pair sends the numbers that the other one waits for.
void Swarm::compare_numbers(Party& active) {
  const Party& passive = parties_[active.partner];
  QpSettings hears;
  QpSettings sends;
  if (active.reheard || !is_alive(passive) || !passive.accepted ||
      manager(active).qp_settings(active.id, kQpRtr, hears) != 0 ||
      manager(passive).qp_settings(passive.id, kQpRts, sends) != 0) {
    return;
  }
  if (hears.rq_psn != sends.sq_psn || hears.destination_qpn != passive.qpn) {
    condemn(active, "its queue pair does not fit the peer's");
  }
}

// In a calm world: the peer has gone, or thinks longer than a datagram's asker can be told to wait.
bool Swarm::is_excused_from_answering(const Party& party) const {
  return (party.partner != kNobody && has_left(party.partner)) ||
         (party.datagram && plan_.longest_thought > seconds{60});
}

// To answer what was asked again and again since then: not all of that can have been lost.
bool Swarm::has_had_time(const Party& party, TimePoint since) const {
  return plan_.lose < 0.2 && !plan_.tight() && !party.reheard && since != kNever &&
         since + seconds{60} < now_ && hosts_[party.host].manager != nullptr &&
         hosts_[party.host].life == party.life;
}

void Swarm::hear_end(Party& party, const Event& event) {
  const bool asked = party.role == Party::Role::active ? party.asked : party.accepted;
  // An end needs a reason: one of the two programs has ended the connection or is gone, or a queue
  // pair is used again, which makes its older connection stale, or two lives of the peer have heard
  // the request and either may have answered.
  const bool excused = party.parted || party.reuses || party.reheard || has_left(party.partner) ||
                       (party.partner != kNobody && parties_[party.partner].reuses);
  switch (event.kind) {
    case EventKind::rejected:
      ++outcome_.rejected;
      if ((party.role == Party::Role::active && !asked) || party.has_heard(kEnds)) {
        condemn(party, "it is rejected, but was not waiting");
      } else if (!excused) {
        condemn(party, "it is rejected (" + std::to_string(event.status) + ") by nobody");
      }
      break;
    case EventKind::unreachable:
      ++outcome_.unreachable;
      if (!asked || party.has_heard(kAnswers)) {
        condemn(party, "it gives up what has been answered");
      } else if (plan_.calm() && event.status < 0 && !is_excused_from_answering(party)) {
        condemn(party, "it gives up, and nothing was lost");
      } else if (party.role == Party::Role::passive && !excused &&
                 has_had_time(parties_[party.partner], parties_[party.partner].accepted_at)) {
        condemn(party, "it gives up, but the peer was ready long ago");
      }
      break;
    case EventKind::disconnected:
      ++outcome_.disconnected;
      if (!party.accepted || party.has_heard(kEnds)) {
        condemn(party, "it is parted from nobody");
      } else if (!excused) {
        condemn(party, "its connection ends, and nobody has ended it");
      } else if (event.status != 0 && !party.reuses &&
                 has_had_time(parties_[party.partner], parties_[party.partner].left_at)) {
        condemn(party, "its good-bye was never answered");
      }
      break;
    case EventKind::timewait_exit:
      if (!party.has_heard(bit(EventKind::disconnected))) {
        condemn(party, "the time after a connection ends before the connection");
      }
      return;
    default:
      return condemn(party, "it hears event " + std::to_string(static_cast<unsigned>(event.kind)));
  }
  party.act_at = now_ + thought();
}

void Swarm::check_open(const Party& party) {
  if (party.role == Party::Role::active && party.asked && !party.has_heard(kAnswers)) {
    condemn(party, "it was never answered");
  }
  const std::uint32_t closed = kEnds | bit(EventKind::established);
  if (party.role == Party::Role::passive && party.accepted && !party.datagram &&
      !party.has_heard(closed)) {
    condemn(party, "it was accepted, and never heard of again");
  }
}

// Both know the same, or one of them was told good-bye once and did not hear it.
void Swarm::check_pair(const Party& active) {
  if (!active.accepted || active.datagram || active.has_heard(kEnds) || active.parted) {
    return;
  }
  const Party& passive = parties_[active.partner];
  if (passive.parted && !passive.gone && is_alive(passive)) {
    condemn(active, "the peer has parted, and it does not know");
  } else if (is_alive(passive) && !passive.has_heard(kEnds) &&
             !passive.has_heard(bit(EventKind::established))) {
    condemn(active, "it has a connection, and the peer has none");
  } else if (plan_.calm() && has_left(active.partner) && !passive.reuses && !active.reuses) {
    condemn(active, "the peer has left, and it does not know");
  }
}

void Swarm::check_the_end() {
  for (const Party& party : parties_) {
    if (is_alive(party)) {
      check_open(party);
      if (party.role == Party::Role::active) {
        check_pair(party);
      }
    }
  }
}

void Swarm::destroy_all() {
  for (SwarmHost& host : hosts_) {
    while (host.manager != nullptr && !host.parties.empty()) {
      destroy(parties_[host.parties.begin()->second]);
    }
  }
}

// A minute is enough for the last good-byes, also for those that are sent again. After that an hour
// must pass in which no manager says anything.
void Swarm::check_nothing_stays() {
  destroy_all();
  run_until(now_ + seconds{60});
  const std::uint64_t messages = outcome_.messages;
  run_until(now_ + seconds{3600});
  if (outcome_.messages != messages) {
    condemn("somebody still talks when all ids are gone");
  }
  for (const SwarmHost& host : hosts_) {
    if (host.manager != nullptr &&
        (host.manager->ids() != 0 || host.manager->next_timeout() != kNever ||
         !host.claims->empty() || host.manager->listens())) {
      condemn("something stays when all ids are gone: " + std::to_string(host.manager->ids()) +
              " ids");
    }
  }
}

// Whatever has happened: it can be done again.
void Swarm::check_a_new_connection() {
  for (std::uint32_t from = 0; from < plan_.hosts && outcome_.failure.empty(); ++from) {
    const std::uint32_t to = rng_.below(plan_.hosts);
    if (hosts_[from].manager == nullptr || hosts_[to].manager == nullptr) {
      continue;
    }
    listen(to, false);
    listen(to, true);
    const std::uint64_t connected = outcome_.connected;
    begin(from, to);
    run_until(now_ + seconds{20});
    if (outcome_.connected != connected + 1) {
      condemn("in the end nobody can connect any more");
    }
    destroy_all();
    run_until(now_ + seconds{200});
  }
}

}  // namespace weft::roce::cm
