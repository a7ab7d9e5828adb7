// Owns the life of an id up to its connection: addresses, ports, routes, listening; and its end.
//
// An id goes through the states idle, bound, address_resolved, route_resolved and connecting (which
// it keeps while it is connected), as in Linux's rdma_cm; each call refuses those in which it makes
// no sense. Resolving takes no time here: addresses are those of the network's NICs, and the event
// follows at once.
#include "emu/roce/cm/manager.hpp"

#include <algorithm>
#include <cerrno>

namespace weft::roce::cm {
namespace {

constexpr std::uint32_t kSequenceMask = 0xFFFFFF;
constexpr std::uint32_t kNumberMask = 0xFFFFFF;

// As Linux spreads connections over the paths of a network.
std::uint32_t flow_label_of(std::uint16_t source, std::uint16_t destination) {
  return (std::uint32_t{source} * 31 + destination) & 0xFFFFF;
}

}  // namespace

Manager::Manager(Config config, ServiceClaims& claims, const Reachability& reachability)
    : config_(std::move(config)),
      reachability_(reachability),
      rng_(config_.seed),
      ports_(claims, rng_.next()),
      ids_(config_.max_ids),
      next_number_(static_cast<std::uint32_t>(rng_.next()) & kNumberMask) {}

// Each connection begins with another sequence number: a late packet of a former one is not in its
// window.
std::uint32_t Manager::allocate() {
  const std::uint32_t slot = ids_.allocate();
  if (slot != kNone) {
    ids_[slot] = Connection{};
    ids_[slot].state = IdState::idle;
    ids_[slot].sequence = static_cast<std::uint32_t>(rng_.next()) & kSequenceMask;
  }
  return slot;
}

std::optional<Handle> Manager::create(PortSpace space, Transport transport) {
  const std::uint32_t slot = allocate();
  if (slot == kNone) {
    return std::nullopt;
  }
  ids_[slot].binding.space = space;
  ids_[slot].transport = transport;
  return Handle{slot};
}

// Gives back all that an id holds: its port, its number, what it is found by.
void Manager::free(std::uint32_t slot) {
  Connection& id = ids_[slot];
  stop_timer(slot);
  if (id.local_id != 0) {
    by_local_id_.erase(id.local_id);
  }
  if (id.has_port && !mutated(Mutation::keep_ports)) {
    ports_.release(slot, id.binding);
  }
  if (id.phase == Phase::timewait && mutated(Mutation::keep_ids)) {
    return;
  }
  id.state = IdState::free;
  ids_.release(slot);
}

// Events of an id that is gone are not told any more; connections that nothing has accepted go with
// their listener.
void Manager::destroy(TimePoint now, Handle handle) {
  const std::uint32_t slot = handle.value();
  if (ids_[slot].state == IdState::listening) {
    std::erase_if(listeners_, [slot](const auto& entry) { return entry.second == slot; });
  }
  drop_events(now, handle);
  part(now, slot);
  free(slot);
}

// Events of the id itself, and with each unfetched connect_request the connection that it
// announces, since no program knows that one yet.
void Manager::drop_events(TimePoint now, Handle handle) {
  std::vector<Handle> unheard;
  std::erase_if(events_, [&](const Event& event) {
    if (event.id != handle || mutated(Mutation::tell_of_the_gone)) {
      return false;
    }
    if (event.kind == EventKind::connect_request) {
      unheard.push_back(event.connection);
    }
    return true;
  });
  for (const Handle connection : unheard) {
    destroy(now, connection);
  }
}

const LocalAddress* Manager::find_address(const srd::Address& address) const {
  const auto found = std::ranges::find(config_.addresses, address, &LocalAddress::address);
  return found == config_.addresses.end() ? nullptr : &*found;
}

const LocalAddress* Manager::first_address(bool v4) const {
  const auto found = std::ranges::find_if(
      config_.addresses, [v4](const LocalAddress& own) { return own.address.is_v4() == v4; });
  return found == config_.addresses.end() ? nullptr : &*found;
}

// Binds the id to the NIC that has this address.
int Manager::take_nic(Connection& id, const srd::Address& address) const {
  const LocalAddress* const own = find_address(address);
  if (own == nullptr) {
    return EADDRNOTAVAIL;
  }
  if (id.binding.space == PortSpace::ipoib) {
    return EINVAL;  // for InfiniBand only
  }
  id.has_nic = true;
  id.nic = own->nic;
  id.path.gid_index = own->gid_index;
  return 0;
}

// Linux takes loopback addresses, which no NIC has, for any of the host's.
SocketAddress Manager::without_loopback(SocketAddress address) const {
  if (address.is_loopback() && find_address(address.ip) == nullptr) {
    address.ip = address.is_v4() ? srd::Address::v4(0, 0, 0, 0) : srd::Address{};
  }
  return address;
}

int Manager::bind(Handle handle, SocketAddress address) {
  Connection& id = ids_[handle.value()];
  if (id.state != IdState::idle) {
    return EINVAL;
  }
  address = without_loopback(address);
  address.known = true;
  if (!address.is_any()) {
    if (const int error = take_nic(id, address.ip); error != 0) {
      return error;
    }
  }
  Binding binding = id.binding;
  binding.address = address;
  if (const int error = ports_.bind(handle.value(), binding); error != 0) {
    id.has_nic = false;
    return error;
  }
  id.binding = binding;
  id.has_port = true;
  id.state = IdState::bound;
  return 0;
}

// A destination of "any" is this host. Reaching it is asked for every own address in turn; the
// first one that works becomes the id's address, as a route lookup would choose it.
int Manager::resolve_address(Handle handle, SocketAddress source, SocketAddress destination) {
  Connection& id = ids_[handle.value()];
  if (id.state == IdState::idle) {
    if (!source.known) {
      source = SocketAddress{destination.is_v4() ? srd::Address::v4(0, 0, 0, 0) : srd::Address{}};
    }
    // A port only to connect from: weftd need not be asked.
    id.binding.outgoing = source.port == 0;
    if (const int error = bind(handle, source); error != 0) {
      return error;
    }
  }
  if (id.state != IdState::bound || id.binding.address.is_v4() != destination.is_v4()) {
    return EINVAL;
  }
  const bool v4 = destination.is_v4();
  destination = without_loopback(destination);
  if (const LocalAddress* const own = first_address(v4); destination.is_any() && own != nullptr) {
    destination.ip = own->address;
  }
  destination.known = true;
  id.destination = destination;

  int error = ENETUNREACH;
  for (const LocalAddress& own : config_.addresses) {
    const SocketAddress& bound = id.binding.address;
    if (own.address.is_v4() != v4 || (!bound.is_any() && own.address != bound.ip)) {
      continue;
    }
    error = reachability_.reach(own.address, destination.ip);
    if (error == 0) {
      error = take_nic(id, own.address);
      id.binding.address.ip = own.address;
      ports_.change(handle.value(), id.binding);
      break;
    }
  }
  if (error != 0) {
    tell(handle.value(), EventKind::address_error, -error);
    return 0;
  }
  id.state = IdState::address_resolved;
  tell(handle.value(), EventKind::address_resolved);
  return 0;
}

// There is no subnet manager on Ethernet: the path is made of what the port and the id's options
// say.
int Manager::resolve_route(Handle handle) {
  Connection& id = ids_[handle.value()];
  if (id.state != IdState::address_resolved) {
    return EINVAL;
  }
  id.path.source = id.binding.address.ip;
  id.path.destination = id.destination.ip;
  id.path.flow_label = flow_label_of(id.binding.address.port, id.destination.port);
  id.path.traffic_class = id.traffic_class;
  id.path.mtu = config_.nics[id.nic].path_mtu;
  if (id.ack_timeout_set && id.ack_timeout != 0) {
    id.path.lifetime = static_cast<std::uint8_t>(id.ack_timeout - 1);
  }
  id.has_path = true;
  id.state = IdState::route_resolved;
  tell(handle.value(), EventKind::route_resolved);
  return 0;
}

// Here `reuse` ends: two listeners on one port could not be told apart.
int Manager::listen(Handle handle, std::uint32_t backlog) {
  const std::uint32_t slot = handle.value();
  Connection& id = ids_[slot];
  if (id.state == IdState::idle) {
    if (const int error = bind(handle, {srd::Address::v4(0, 0, 0, 0)}); error != 0) {
      return error;
    }
  }
  if (id.state != IdState::bound) {
    return EINVAL;
  }
  if (id.binding.reuse) {
    if (const int error = ports_.check_listen(slot, id.binding); error != 0) {
      return error;
    }
    id.binding.reuse = false;
    ports_.change(slot, id.binding);
  }
  if (const int error = ports_.claim(id.binding); error != 0) {
    return error;
  }
  id.backlog = backlog == 0 || backlog > kMaxBacklog ? kMaxBacklog : backlog;
  id.state = IdState::listening;
  listeners_.emplace(service_id(id.binding.space, id.binding.address.port), slot);
  return 0;
}

// RoCE has no registry of groups (InfiniBand's SA): joining only says how to send. Receivers attach
// their queue pairs themselves.
int Manager::join(Handle handle, const SocketAddress& address, std::uint32_t number) {
  constexpr int kNotSupported = 524;  // Linux's ENOTSUPP, which no header of programs names
  Connection& id = ids_[handle.value()];
  if ((id.state != IdState::bound && id.state != IdState::address_resolved) || !id.has_nic ||
      id.transport != Transport::ud || address.ip == srd::Address{}) {
    return EINVAL;
  }
  if (!address.is_v4()) {
    return kNotSupported;  // as Linux on RoCE v2, which has no MLD there
  }
  if (const int error = set_qkey(id, 0); error != 0) {
    return error;
  }
  Event event;
  event.kind = EventKind::multicast_join;
  event.id = handle;
  event.datagram = true;
  event.parameters.qpn = kGroupQpn;
  event.parameters.qkey = id.qkey;
  event.path.source = id.binding.address.ip;
  event.path.destination = address.ip;
  event.path.traffic_class = id.traffic_class;
  event.path.gid_index = id.path.gid_index;
  event.group = number;
  events_.push_back(event);
  return 0;
}

void Manager::took_request(Handle listener) {
  Connection& id = ids_[listener.value()];
  id.waiting -= id.waiting > 0 ? 1U : 0U;
}

// Switching reuse on is allowed late, switching it off only before the port is taken, as in Linux.
int Manager::set_reuse(Handle handle, bool on) {
  Connection& id = ids_[handle.value()];
  if (id.state != IdState::idle && (!on || id.state == IdState::listening)) {
    return EINVAL;
  }
  id.binding.reuse = on;
  if (id.has_port) {
    ports_.change(handle.value(), id.binding);
  }
  return 0;
}

int Manager::set_own_family(Handle handle, bool on) {
  Connection& id = ids_[handle.value()];
  if (id.state != IdState::idle && id.state != IdState::bound) {
    return EINVAL;
  }
  id.binding.own_family = on;
  if (id.has_port) {
    ports_.change(handle.value(), id.binding);
  }
  return 0;
}

int Manager::set_ack_timeout(Handle handle, std::uint8_t exponent) {
  Connection& id = ids_[handle.value()];
  if (id.transport != Transport::rc) {
    return EINVAL;
  }
  id.ack_timeout = exponent & 0x1F;
  id.ack_timeout_set = true;
  return 0;
}

void Manager::tell(std::uint32_t slot, EventKind kind, std::int32_t status) {
  tell(slot, kind, status, PrivateData{});
}

void Manager::tell(std::uint32_t slot, EventKind kind, std::int32_t status,
                   const PrivateData& data) {
  Event event;
  event.kind = kind;
  event.id = Handle{slot};
  event.status = status;
  event.datagram = ids_[slot].transport == Transport::ud;
  event.parameters.data = data;
  events_.push_back(event);
}

bool Manager::next_event(Event& event) {
  if (events_.empty()) {
    return false;
  }
  event = events_.front();
  events_.pop_front();
  return true;
}

}  // namespace weft::roce::cm
