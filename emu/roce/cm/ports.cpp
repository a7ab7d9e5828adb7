// Owns the conflicts between bound ports.
//
// By the rules of Linux: a port with a wildcard address conflicts with the same port on any
// address, unless both owners allow the reuse, or each serves its own family of addresses only.
// Among the processes of a host a service belongs to the one that has claimed it (ServiceClaims),
// which is asked only for ports that others may send requests to.
#include "emu/roce/cm/ports.hpp"

#include <algorithm>
#include <cerrno>

namespace weft::roce::cm {

Ports::~Ports() {
  for (const auto& [id, service] : services_) {
    if (service.claimed) {
      claims_.release(id);
    }
  }
}

// EADDRNOTAVAIL and EADDRINUSE are the errors that Linux gives for the two cases; programs tell
// them apart.
int Ports::conflict(std::uint32_t owner, const Binding& binding, bool reuse) const {
  const auto found = services_.find(service_id(binding.space, binding.address.port));
  if (found == services_.end()) {
    return 0;
  }
  for (const Entry& other : found->second.entries) {
    const SocketAddress& address = other.binding.address;
    if (other.owner == owner || (reuse && other.binding.reuse) ||
        (binding.own_family && other.binding.own_family &&
         address.is_v4() != binding.address.is_v4())) {
      continue;
    }
    if (address.is_any() || binding.address.is_any()) {
      return EADDRNOTAVAIL;
    }
    if (address.ip == binding.address.ip) {
      return EADDRINUSE;
    }
  }
  return 0;
}

// Tries at random, as Linux does, so that two processes seldom ask weftd for the same port.
int Ports::find_port(std::uint32_t owner, Binding& binding) {
  for (int i = 0; i < kMaxTries; ++i) {
    Binding attempt = binding;
    attempt.address.port = static_cast<std::uint16_t>(kFirstEphemeral + rng_.below(kEphemerals));
    if (!services_.contains(service_id(attempt.space, attempt.address.port)) &&
        bind(owner, attempt) == 0) {
      binding = attempt;
      return 0;
    }
  }
  return EADDRNOTAVAIL;
}

// The claim comes last: it asks another process and would have to be taken back after a conflict.
int Ports::bind(std::uint32_t owner, Binding& binding) {
  if (binding.address.port == 0) {
    return find_port(owner, binding);
  }
  if (const int error = conflict(owner, binding, binding.reuse); error != 0) {
    return error;
  }
  const std::uint64_t id = service_id(binding.space, binding.address.port);
  const auto found = services_.find(id);
  const bool claimed = found != services_.end() && found->second.claimed;
  // An outgoing binding of this process may have the port without the claim.
  if (!binding.outgoing && !claimed && !claims_.claim(id)) {
    return EADDRINUSE;
  }
  Service& service = services_[id];
  service.claimed = claimed || !binding.outgoing;
  service.entries.push_back({owner, binding});
  return 0;
}

int Ports::check_listen(std::uint32_t owner, const Binding& binding) const {
  return conflict(owner, binding, false);
}

int Ports::claim(const Binding& binding) {
  const std::uint64_t id = service_id(binding.space, binding.address.port);
  Service& service = services_.at(id);
  service.claimed = service.claimed || claims_.claim(id);
  return service.claimed ? 0 : EADDRINUSE;
}

void Ports::release(std::uint32_t owner, const Binding& binding) {
  const auto found = services_.find(service_id(binding.space, binding.address.port));
  if (found == services_.end()) {
    return;
  }
  Service& service = found->second;
  std::erase_if(service.entries, [owner](const Entry& entry) { return entry.owner == owner; });
  if (service.entries.empty()) {
    if (service.claimed) {
      claims_.release(found->first);
    }
    services_.erase(found);
  }
}

void Ports::change(std::uint32_t owner, const Binding& binding) {
  const auto found = services_.find(service_id(binding.space, binding.address.port));
  if (found == services_.end()) {
    return;
  }
  for (Entry& entry : found->second.entries) {
    if (entry.owner == owner) {
      entry.binding = binding;
    }
  }
}

}  // namespace weft::roce::cm
