// Owns the course of an attachment: connection, request, place, rings, end.
//
// A connection begins as a Newcomer, which may ask for little, costs little, and is sent away when
// it stays idle. A request for a place turns it into a Process: ring memory and bell are made, a
// place (number and life) is taken in the registry, and a Slot is handed to the forwarding thread.
// The end comes in two steps, because the forwarding thread may still read the ring: leave() stops
// frames to the process and takes its direct rings back; when the ring has been emptied
// (Notice::drained), take_out() gives the place free.
//
// All of it runs on the control thread. What belongs to the forwarding thread is changed by calls
// of NetworkControl, which that thread executes between two rounds.
#include "emu/daemon/attach_server.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "emu/attach/peer.hpp"
#include "emu/daemon/attach_answers.hpp"
#include "emu/daemon/protocols.hpp"
#include "srd/io/ring_ports.hpp"
#include "srd/net/envelope.hpp"
#include "srd/run/clock.hpp"

namespace weft::daemon {
namespace {

constexpr std::size_t kMaxNewcomers = 256;
constexpr std::size_t kMaxNewcomersOfAUser = 192;
constexpr Duration kIdleNewcomer = std::chrono::seconds{10};
constexpr auto kSweep = std::chrono::seconds{1};
// How long places stay free for processes of other pid namespaces that attached to an earlier
// weftd: kill(pid, 0) cannot tell whether those still run.
constexpr Duration kWaitForUnknown = std::chrono::seconds{10};
// Where all processes talk to all, the number of direct rings grows with the square of theirs: from
// this many pairs on, rings are smaller.
constexpr std::size_t kLargeDirectRings = 32;
constexpr std::size_t kSmallRing = std::size_t{1} << 19;
constexpr std::size_t kMaxRing = std::size_t{1} << 24;

std::uint64_t place_key(std::uint32_t nic, std::uint16_t id) {
  return std::uint64_t{nic} << 16 | id;
}

// How many queue pair numbers a process has on its NIC.
std::optional<std::uint32_t> qpns_of(const attach::AttachRequest& request) {
  const auto bits = request.udp_port > 0xFFFF
                        ? std::nullopt
                        : Protocols::qpn_bits(static_cast<std::uint16_t>(request.udp_port));
  return bits ? std::optional(1U << *bits) : std::nullopt;
}

}  // namespace

struct AttachServer::Newcomer {
  std::unique_ptr<ClientWatch> socket;
  uid_t user = 0;
  TimePoint since{};
};

// The control thread's half of an attached process; the forwarding thread's half is its Slot.
struct AttachServer::Process {
  std::uint64_t number = 0;
  PlaceRegistry::Place place;
  std::unique_ptr<ClientWatch> socket;
  std::unique_ptr<Watch> end;  // a pidfd: shows the end even if a child keeps the socket open
  std::int32_t pid = 0;
  Slot* slot = nullptr;  // the forwarding thread's, until it is taken out
  bool direct_rings = true;
  std::uint32_t qpn_count = 0;
  std::size_t ring_bytes = 0;
  std::vector<Process*> peers;  // with which it has a direct ring
  bool leaving = false;
  bool broken = false;
};

AttachServer::AttachServer(boost::asio::io_context& io, SideThreads& side, Plant& plant,
                           NetworkControl& network, EventLog& events, const Options& options)
    : io_(io),
      side_(side),
      plant_(plant),
      network_(network),
      events_(events),
      options_(options),
      admission_(options.other_users, events),
      registry_(plant),
      taps_(side, plant, network, srd::net::max_frame_for(options.mtu)),
      sweep_(io) {}

AttachServer::~AttachServer() = default;

Result<void> AttachServer::remember(const std::string& file) { return registry_.remember(file); }

void AttachServer::listen(srd::UniqueFd listener) {
  acceptor_ = std::make_unique<Acceptor>(
      io_, side_, std::move(listener),
      Acceptor::Rules{.strangers = false,
                      .refusal = [this](int socket) { return admission_.refusal(socket); },
                      .tell_strangers = true,
                      .take = [this](ClientSocket socket) { take(std::move(socket)); },
                      .refuse = [](int socket, std::string_view why) { refuse(socket, why); }});
}

std::uint32_t AttachServer::life_of_now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(since).count() / 100);
}

// --- Newcomers.

void AttachServer::take(ClientSocket socket) {
  const uid_t user = attach::peer_user(socket.get());
  if (newcomers_.size() >= kMaxNewcomers || newcomers_of_[user] >= kMaxNewcomersOfAUser) {
    refuse(socket.get(), "too many processes come to this weftd at once; try again");
    return;
  }
  const std::uint64_t number = ++numbers_;
  auto newcomer = std::make_unique<Newcomer>();
  newcomer->socket = std::make_unique<ClientWatch>(io_, std::move(socket));
  newcomer->user = user;
  newcomer->since = srd::monotonic_now();
  newcomers_.emplace(number, std::move(newcomer));
  ++newcomers_of_[user];
  await_newcomer(number);
  send_idle_newcomers_away();
}

// Once a second while there are newcomers: a connection that asks for nothing must not keep a place
// among kMaxNewcomers.
void AttachServer::send_idle_newcomers_away() {
  const TimePoint now = srd::monotonic_now();
  if (sweeping_) {
    return;
  }
  std::erase_if(newcomers_, [&](const auto& newcomer) {
    const bool idle = now - newcomer.second->since >= kIdleNewcomer;
    newcomers_of_[newcomer.second->user] -= idle ? 1U : 0U;
    return idle;
  });
  sweeping_ = !newcomers_.empty();
  if (sweeping_) {
    sweep_.expires_after(kSweep);
    sweep_.async_wait([this](const auto& error) {
      sweeping_ = false;
      if (!error) {
        send_idle_newcomers_away();
      }
    });
  }
}

void AttachServer::await_newcomer(std::uint64_t number) {
  newcomers_.at(number)->socket->when_readable([this, number] { hear_newcomer(number); });
}

// A newcomer may describe a host as often as it likes. It becomes an attached process or the donor
// of a tap, or it is refused and its connection closed.
void AttachServer::hear_newcomer(std::uint64_t number) {
  const auto found = newcomers_.find(number);
  if (found == newcomers_.end()) {
    return;
  }
  Newcomer& newcomer = *found->second;
  const ClientSocket::Next next = newcomer.socket->watched().next();
  if (next == ClientSocket::Next::descriptors) {
    taps_.take(dismiss_newcomer(number));
    return;
  }
  if (next == ClientSocket::Next::nothing) {  // only what next() has looked at may be received
    await_newcomer(number);
    return;
  }
  const int socket = newcomer.socket->fd();
  const attach::Received received = attach::receive_message(socket);
  bool stays = received.state == attach::Received::State::nothing;
  std::optional<attach::AttachRequest> attach;
  if (attach::is_well_formed(received.as<attach::TapRequest>(), attach::AttachMessage::tap)) {
    refuse(socket, "a tap request brings one descriptor");
  } else if (const auto describe = received.as<attach::DescribeRequest>();
             attach::is_well_formed(describe, attach::AttachMessage::describe)) {
    stays = answer_describe(socket, *describe);
  } else if (attach::is_well_formed(received.as<attach::AttachRequest>(),
                                    attach::AttachMessage::attach)) {
    attach = received.as<attach::AttachRequest>();
  } else if (received.state == attach::Received::State::message) {
    refuse(socket, "the program and weftd are of different versions of weft");
  }
  if (stays) {
    await_newcomer(number);
    return;
  }
  std::unique_ptr<ClientWatch> connection = dismiss_newcomer(number);
  if (attach) {
    if (auto in = let_in(connection, *attach); !in) {
      refuse(connection->fd(), in.error().message);
    }
  }
}

std::unique_ptr<ClientWatch> AttachServer::dismiss_newcomer(std::uint64_t number) {
  const auto newcomer = newcomers_.extract(number);
  --newcomers_of_[newcomer.mapped()->user];
  return std::move(newcomer.mapped()->socket);
}

bool AttachServer::answer_describe(int socket, const attach::DescribeRequest& request) {
  const auto nics = nics_named(plant_, request.host);
  if (!nics) {
    refuse(socket, nics.error().message);
    return false;
  }
  attach::HostReply reply;
  reply.nics = static_cast<std::uint32_t>(nics->size());
  for (std::size_t i = 0; i < nics->size(); ++i) {
    reply.addresses[i] = (*nics)[i]->address.bytes;
  }
  return attach::send_struct(socket, reply);
}

// --- Attaching.

// A wish is granted between a sixteenth of the usual size and kMaxRing, rounded up to a power
// of two.
std::size_t AttachServer::ring_bytes_for(const attach::AttachRequest& request) const {
  if (request.ring_bytes == 0) {
    return options_.ring_bytes;
  }
  return std::bit_ceil(
      std::clamp<std::size_t>(request.ring_bytes, options_.ring_bytes / 16, kMaxRing));
}

Result<PlantNic*> AttachServer::nic_for(const attach::AttachRequest& request) const {
  const auto nics = nics_named(plant_, request.host);
  if (!nics) {
    return tl::unexpected(nics.error());
  }
  if ((request.flags & ~attach::kAttachFlags) != 0) {
    return fail(ErrorCode::invalid_argument, "unknown flags " + std::to_string(request.flags));
  }
  if (!qpns_of(request)) {
    return fail(ErrorCode::invalid_argument, "no protocol known to this weftd uses UDP port " +
                                                 std::to_string(request.udp_port));
  }
  if (request.nic >= nics->size()) {
    return fail(ErrorCode::invalid_argument, "NIC " + std::to_string(request.nic) +
                                                 " of a host with " + std::to_string(nics->size()));
  }
  return (*nics)[request.nic];
}

// Takes the connection if it succeeds. In this order, so that a failure leaves nothing behind: ring
// memory and bell; the place in the registry; the slot, handed to the forwarding thread; the reply
// with the descriptors. Only then does the process know its place.
Result<void> AttachServer::let_in(std::unique_ptr<ClientWatch>& socket,
                                  const attach::AttachRequest& request) {
  const auto nic = nic_for(request);
  if (!nic) {
    return tl::unexpected(nic.error());
  }
  const std::size_t ring_bytes = ring_bytes_for(request);
  const std::size_t max_frame = srd::net::max_frame_for(options_.mtu);
  auto memory = srd::RingPort::create_memory(ring_bytes);
  auto bell = srd::Bell::create_pair();
  if (!memory || !bell) {
    return tl::unexpected(memory ? bell.error() : memory.error());
  }
  auto port = srd::RingPort::open(memory->get(), ring_bytes, 0, max_frame, std::move(bell->first));
  if (!port) {
    return tl::unexpected(port.error());
  }
  // Later than any life that an earlier weftd gave out: peers must not take this process for one
  // that had the same place and died while no weftd ran.
  const srd::Life now{life_of_now()};
  const pid_t pid = attach::peer_process(socket->fd());
  registry_.keep_unknown(srd::monotonic_now() - options_.started < kWaitForUnknown);
  const auto place =
      registry_.occupy(**nic, {.attachment = request.attachment, .life = request.life},
                       (now.before(first_life_) ? first_life_ : now).value(), pid);
  if (!place) {
    return tl::unexpected(place.error());
  }
  auto process = std::make_unique<Process>();
  process->number = ++numbers_;
  process->place = *place;
  process->socket = std::move(socket);
  process->pid = pid;
  process->direct_rings = (request.flags & attach::kNoDirectRings) == 0;
  process->qpn_count = *qpns_of(request);
  process->ring_bytes = ring_bytes;
  // Without it, only the end of the socket shows the end of the process.
  if (srd::UniqueFd end = attach::peer_pidfd(process->socket->fd())) {
    process->end = std::make_unique<Watch>(io_, std::move(end));
  }
  auto slot = slot_for(*process, std::move(*port));
  process->slot = slot.get();
  if (!network_.add(std::move(slot))) {
    socket = std::move(process->socket);
    registry_.vacate(*place);
    return fail(ErrorCode::out_of_resources, "weftd cannot watch one process more");
  }
  events_.note("attach", {{"host", place->nic->host},
                          {"nic", place->nic->index},
                          {"attachment", place->id},
                          {"pid", pid},
                          {"again", request.attachment != 0}});
  Process& in = *process;
  by_place_[place_key(place->nic->port, place->id)] = &in;
  processes_.emplace(in.number, std::move(process));
  if (attach::send_struct(in.socket->fd(), reply_for(in), {memory->get(), bell->second.fd()})) {
    bell->second.given_away();
    watch(in);
  } else {
    leave(in);
  }
  return {};
}

std::unique_ptr<Slot> AttachServer::slot_for(const Process& process, srd::RingPort port) {
  auto slot = std::make_unique<Slot>();
  slot->nic = process.place.nic;
  slot->id = process.place.id;
  slot->first_qpn = process.place.id * process.qpn_count;
  slot->life = process.place.life;
  slot->serial = ++serials_;
  slot->port = std::move(port);
  slot->ring_bytes = process.ring_bytes;
  slot->pid = process.pid;
  slot->direct_rings = options_.direct_rings && process.direct_rings;
  return slot;
}

attach::AttachReply AttachServer::reply_for(const Process& process) const {
  const PlantNic& nic = *process.place.nic;
  attach::AttachReply reply;
  reply.address = nic.address.bytes;
  reply.attachment = process.place.id;
  reply.life = process.place.life.value();
  reply.first_qpn = process.place.id * process.qpn_count;
  reply.qpn_count = process.qpn_count;
  reply.mtu = static_cast<std::uint32_t>(options_.mtu);
  reply.ring_bytes = static_cast<std::uint32_t>(process.ring_bytes);
  if (options_.tells_network) {
    const srd::NetworkModel network = network_.seen_from(nic);
    reply.bits_per_second = network.rate.bits_per_second();
    reply.round_trip = static_cast<std::uint64_t>(nanoseconds(network.round_trip));
    reply.trims = network.trims ? 1 : 0;
  }
  reply.link_up = network_.link_up(nic) ? 1 : 0;
  return reply;
}

void AttachServer::watch(Process& process) {
  const auto end = [this, number = process.number] {
    if (const auto found = processes_.find(number); found != processes_.end()) {
      leave(*found->second);
    }
  };
  hear(process);
  if (process.end) {
    process.end->when_readable(end);
  }
}

// An attached process may claim services, join groups and ask for addresses. Anything else is the
// end of the connection, or a mistake, and ends the attachment.
void AttachServer::hear(Process& process) {
  process.socket->when_readable([this, number = process.number] {
    const auto found = processes_.find(number);
    if (found == processes_.end() || found->second->leaving) {
      return;
    }
    Process& from = *found->second;
    if (answer(from)) {
      hear(from);
    } else {
      leave(from);
    }
  });
}

bool AttachServer::answer(const Process& process) {
  const ClientSocket::Next next = process.socket->watched().next();
  if (next != ClientSocket::Next::bare) {
    return next == ClientSocket::Next::nothing;
  }
  const attach::Received received = attach::receive_message(process.socket->fd());
  if (const auto request = received.as<attach::ServiceRequest>();
      attach::is_well_formed(request, attach::AttachMessage::service)) {
    const bool wanted = request->wanted != 0;
    attach::ServiceReply reply;
    reply.service = request->service;
    reply.granted = network_.serve(*process.slot, request->service, wanted) ? 1 : 0;
    return !wanted || attach::send_struct(process.socket->fd(), reply);
  }
  const auto request = received.as<attach::AddressRequest>();
  const bool group = attach::is_well_formed(request, attach::AttachMessage::group);
  if (!group && !attach::is_well_formed(request, attach::AttachMessage::locate)) {
    return false;
  }
  attach::AddressReply reply;
  reply.address = request->address;
  const srd::Address address{request->address};
  if (!group) {
    reply.header.type = attach::AttachMessage::located;
    reply.answer = static_cast<std::uint32_t>(network_.presence_of(address));
    return attach::send_struct(process.socket->fd(), reply);
  }
  const bool wanted = request->wanted != 0;
  reply.header.type = attach::AttachMessage::grouped;
  reply.answer = network_.group(*process.slot, address, wanted) ? 1 : 0;
  return !wanted || attach::send_struct(process.socket->fd(), reply);
}

AttachServer::Process* AttachServer::find(const SlotKey& key) {
  const auto found = by_place_.find(place_key(key.nic, key.id));
  return found == by_place_.end() || found->second->place.life != key.life ? nullptr
                                                                           : found->second;
}

// --- What happens to attached processes.

void AttachServer::heed(const Notice& notice) {
  if (notice.kind == Notice::Kind::link) {
    tell_of_link(notice.slot.nic, notice.up);
    return;
  }
  Process* process = find(notice.slot);
  if (process == nullptr) {
    return;
  }
  switch (notice.kind) {
    case Notice::Kind::flow:
      if (Process* peer = find(notice.peer); peer != nullptr) {
        give_direct_ring(*process, *peer);
      }
      break;
    case Notice::Kind::broken:
      process->broken = true;
      leave(*process);
      break;
    case Notice::Kind::drained:
      take_out(*process);
      break;
    case Notice::Kind::link:
      break;
  }
}

// First half of the end of an attachment: no frame goes to the process any more, its peers lose
// their direct rings to it, and the forwarding thread empties its ring. take_out() is the second
// half, after the notice that the ring is empty.
void AttachServer::leave(Process& process) {
  if (process.leaving) {
    return;
  }
  process.leaving = true;
  network_.retire(*process.slot);
  const std::vector<Process*> peers = std::exchange(process.peers, {});
  std::vector<Slot*> slots;
  for (Process* peer : peers) {
    std::erase(peer->peers, &process);
    --direct_pairs_;
    slots.push_back(peer->slot);
  }
  network_.forget_flows(slots);
  for (Process* peer : peers) {
    take_ring_back(*peer, process);
  }
  network_.raise_notices(slots);
}

void AttachServer::take_out(Process& process) {
  events_.note("detach", {{"host", process.place.nic->host},
                          {"nic", process.place.nic->index},
                          {"attachment", process.place.id},
                          {"pid", process.pid},
                          {"broken_ring", process.broken}});
  const std::unique_ptr<Slot> slot = network_.take(*process.slot);
  registry_.vacate(process.place);
  by_place_.erase(place_key(process.place.nic->port, process.place.id));
  processes_.erase(process.number);
}

// A process whose socket is full cannot be told, and would go on writing into the direct ring. It
// loses its place instead; when it reads its socket again, it asks for the place and gets new
// rings.
void AttachServer::take_ring_back(Process& from, const Process& peer) {
  attach::DirectNotice notice;
  notice.header.type = attach::AttachMessage::undirect;
  notice.peer = peer.place.nic->address.bytes;
  notice.attachment = peer.place.id;
  if (!attach::send_struct(from.socket->fd(), notice)) {
    leave(from);
  }
}

// The lists are emptied first: take_ring_back() may make a process leave, which would otherwise
// change them meanwhile.
void AttachServer::take_all_rings_back() {
  std::vector<Slot*> slots;
  std::vector<std::pair<Process*, std::vector<Process*>>> pairs;
  for (const auto& [number, process] : processes_) {
    if (!process->peers.empty()) {
      slots.push_back(process->slot);
      pairs.emplace_back(process.get(), std::exchange(process->peers, {}));
    }
  }
  direct_pairs_ = 0;
  for (const auto& [process, peers] : pairs) {
    for (const Process* peer : peers) {
      take_ring_back(*process, *peer);
    }
  }
  network_.raise_notices(slots);
}

// Every process on the NIC is told by its socket, and made to read it.
void AttachServer::tell_of_link(std::uint32_t nic, bool up) {
  const PlantNic& changed = *plant_.nics()[nic];
  network_.note_link(nic, up);
  events_.note("link", {{"host", changed.host}, {"nic", changed.index}, {"up", up}});
  attach::LinkNotice notice;
  notice.up = up ? 1 : 0;
  std::vector<Slot*> slots;
  for (std::uint16_t id = 1; id < kSlotsPerNic; ++id) {
    const auto found = by_place_.find(place_key(nic, id));
    if (found == by_place_.end()) {
      continue;
    }
    Process& process = *found->second;
    slots.push_back(process.slot);
    if (!attach::send_struct(process.socket->fd(), notice)) {
      leave(process);  // it is told the state when it attaches again
    }
  }
  network_.raise_notices(slots);
}

// Makes a ring between two processes and gives each one end of it. weftd keeps neither the memory
// nor the bell: it has no part in what goes through the ring.
void AttachServer::give_direct_ring(Process& from, Process& to) {
  constexpr std::size_t kMax = srd::RingPorts::kMaxDirectPorts;
  // A process drops rings beyond kMax without an answer: its peer would write into a ring that no
  // process reads.
  if (network_.is_modelled() || from.leaving || to.leaving || from.peers.size() >= kMax ||
      to.peers.size() >= kMax ||
      std::find(from.peers.begin(), from.peers.end(), &to) != from.peers.end()) {
    return;
  }
  const std::size_t wanted = std::max(from.ring_bytes, to.ring_bytes);
  const std::size_t bytes =
      direct_pairs_ < kLargeDirectRings ? wanted : std::min(kSmallRing, wanted);
  const auto memory = srd::RingPort::create_memory(bytes);
  auto bell = srd::Bell::create_pair();
  if (!memory || !bell) {
    return;  // their frames go on passing through weftd
  }
  const auto tell = [&](const Process& process, const Process& peer, std::uint32_t end,
                        srd::Bell& bell_end) {
    attach::DirectNotice notice;
    notice.header.type = attach::AttachMessage::direct;
    notice.peer = peer.place.nic->address.bytes;
    notice.attachment = peer.place.id;
    notice.life = peer.place.life.value();
    notice.ring_bytes = static_cast<std::uint32_t>(bytes);
    notice.end = end;
    if (!attach::send_struct(process.socket->fd(), notice, {memory->get(), bell_end.fd()})) {
      return false;
    }
    bell_end.given_away();
    return true;
  };
  // The receiver is told first: a process may send into the ring as soon as it has it.
  if (tell(to, from, 0, bell->first)) {
    if (tell(from, to, 1, bell->second)) {
      from.peers.push_back(&to);
      to.peers.push_back(&from);
      ++direct_pairs_;
    } else {
      take_ring_back(to, from);  // `from` may have died just now and would never read the ring
    }
  }
  const std::array<Slot*, 2> slots{to.slot, from.slot};
  network_.raise_notices(slots);
}

}  // namespace weft::daemon
