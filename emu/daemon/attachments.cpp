// Owns weftd's dealings with processes: letting them in, giving them rings, noticing that they are
// gone.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "emu/daemon/attach_protocol.hpp"
#include "emu/daemon/daemon.hpp"
#include "srd/io/ring_io.hpp"
#include "srd/io/tap_io.hpp"
#include "srd/run/clock.hpp"
#include "srd/wire/envelope.hpp"

namespace weft::emu {
namespace {

constexpr std::size_t kMaxNewcomers = 256;
// For processes of other pid namespaces that a weftd before this one knew.
constexpr Duration kWaitForUnknown = std::chrono::seconds{10};
// Processes that all talk to all have many rings, and memory has an end.
constexpr std::size_t kLargeDirectRings = 32;
constexpr std::size_t kSmallRing = std::size_t{1} << 19;

void refuse(int socket, std::string_view text) {
  RefusedReply reply;
  std::memcpy(reply.text.data(), text.data(), std::min(text.size(), reply.text.size() - 1));
  [[maybe_unused]] const bool sent = send_struct(socket, reply);
}

template <std::size_t N>
std::string to_string(const std::array<char, N>& text) {
  return {text.data(), ::strnlen(text.data(), N)};
}

}  // namespace

std::uint32_t Daemon::life_of_now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(since).count() / 100);
}

void Daemon::accept_processes() {
  while (true) {
    srd::UniqueFd socket = accept_one(attach_socket_.get(), [](int fd) {
      refuse(fd, "weftd has no file descriptor left (ulimit -n)");
    });
    if (!socket) {
      return;
    }
    const int fd = socket.get();
    if (!may_connect(fd)) {
      refuse(fd, "this weftd belongs to another user");
    } else if (newcomers_.size() >= kMaxNewcomers) {
      refuse(fd, "too many processes come to this weftd at once; try again");
    } else if (watch(fd, Source::knocking)) {
      const TimePoint now = srd::monotonic_now();
      newcomers_[fd] = {std::move(socket), now};
      next_end_idle_ = std::min(next_end_idle_, now + kIdleInterval);
    }
  }
}

void Daemon::hear_newcomer(int fd) {
  Received received = receive_message(fd);
  if (received.state == Received::State::nothing) {
    return;
  }
  if (const auto tap = received.as<TapRequest>();
      is_well_formed(tap, AttachMessage::tap) && received.fds.size() == 1) {
    answer_tap(fd, *tap, std::move(received.fds[0]));
    return;
  }
  if (const auto describe = received.as<DescribeRequest>();
      is_well_formed(describe, AttachMessage::describe)) {
    answer_describe(fd, *describe);
    return;
  }
  unwatch(fd);
  srd::UniqueFd socket = std::move(newcomers_[fd].socket);
  newcomers_.erase(fd);
  const auto request = received.as<AttachRequest>();
  if (is_well_formed(request, AttachMessage::attach)) {
    answer_attach(std::move(socket), *request);
  } else if (received.state == Received::State::message) {
    refuse(socket.get(), "the program and weftd are of different versions of weft");
  }
}

void Daemon::answer_tap(int fd, const TapRequest& request, srd::UniqueFd device) {
  const auto nics = plant_.nics_of(to_string(request.host));
  if (!nics) {
    refuse(fd, nics.error().message);
    return;
  }
  auto io = srd::TapIo::adopt({.name = {}, .max_frame = srd::wire::kEnvelopeSizeV6 + options_.mtu},
                              std::move(device));
  if (!io) {
    refuse(fd, io.error().message);
    return;
  }
  const std::string name = "tap:" + (*io)->name() + "@" + nics->front()->host;
  if (auto added = add_port(name, std::move(*io), nics->front()); !added) {
    refuse(fd, added.error().message);
    return;
  }
  HostReply reply;
  reply.nics = 1;
  reply.addresses[0] = nics->front()->address.bytes;
  [[maybe_unused]] const bool sent = send_struct(fd, reply);
}

void Daemon::answer_describe(int fd, const DescribeRequest& request) {
  const auto nics = plant_.nics_of(to_string(request.host));
  if (!nics) {
    refuse(fd, nics.error().message);
    return;
  }
  HostReply reply;
  reply.nics = static_cast<std::uint32_t>(nics->size());
  for (std::size_t i = 0; i < nics->size(); ++i) {
    reply.addresses[i] = (*nics)[i]->address.bytes;
  }
  [[maybe_unused]] const bool sent = send_struct(fd, reply);
}

void Daemon::answer_attach(srd::UniqueFd socket, const AttachRequest& request) {
  const auto nics = plant_.nics_of(to_string(request.host));
  if (!nics) {
    refuse(socket.get(), nics.error().message);
    return;
  }
  if (request.nic >= nics->size()) {
    refuse(socket.get(), "NIC " + std::to_string(request.nic) + " of a host with " +
                             std::to_string(nics->size()));
    return;
  }
  // Later than any life that a weftd before this one gave out: whoever died while there was none
  // shall not be taken for whoever gets its place.
  const srd::Life now{life_of_now()};
  const pid_t process = peer_process(socket.get());
  plant_.keep_unknown(srd::monotonic_now() - started_ < kWaitForUnknown);
  auto slot =
      plant_.occupy(*(*nics)[request.nic], {.attachment = request.attachment, .life = request.life},
                    (now.before(first_life_) ? first_life_ : now).value(),
                    process > 0 ? process : Places::kUnknown);
  if (!slot) {
    refuse(socket.get(), slot.error().message);
    return;
  }
  (*slot)->socket = std::move(socket);
  if (auto furnished = furnish(**slot, request); !furnished) {
    refuse((*slot)->socket.get(), furnished.error().message);
    detach(**slot);
  }
}

Result<void> Daemon::furnish(Slot& slot, const AttachRequest& request) {
  slot.pid = peer_process(slot.socket.get());
  slot.direct_rings = (request.flags & kNoDirectRings) == 0;
  slot.wants_management = (request.flags & kWantsManagement) != 0;
  slot.ring_bytes = options_.ring_bytes;
  if (request.ring_bytes != 0) {
    slot.ring_bytes = std::bit_ceil(std::clamp<std::size_t>(
        request.ring_bytes, options_.ring_bytes / 16, std::size_t{1} << 24));
  }
  auto memory = srd::RingPort::create_memory(slot.ring_bytes);
  if (!memory) {
    return tl::unexpected(memory.error());
  }
  auto doorbell = srd::create_doorbell();
  if (!doorbell) {
    return tl::unexpected(doorbell.error());
  }
  auto copy = srd::duplicate(doorbell->get());
  if (!copy) {
    return tl::unexpected(copy.error());
  }
  auto port = srd::RingPort::open(memory->get(), slot.ring_bytes, 0,
                                  srd::wire::kEnvelopeSizeV6 + options_.mtu, std::move(*copy));
  if (!port) {
    return tl::unexpected(port.error());
  }
  slot.port = std::move(*port);
  slot.doorbell = std::move(*doorbell);
  // Not there in other pid namespaces; then the end of the socket has to do.
  slot.process = srd::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, slot.pid, 0)));
  AttachReply reply;
  reply.address = slot.nic->address.bytes;
  reply.attachment = slot.id;
  reply.life = slot.life.value();
  reply.first_qpn = slot.id * kQpnsPerAttachment;
  reply.qpn_count = kQpnsPerAttachment;
  reply.mtu = static_cast<std::uint32_t>(options_.mtu);
  reply.ring_bytes = static_cast<std::uint32_t>(slot.ring_bytes);
  if (fabric_ != nullptr && options_.topology) {
    const srd::NetworkModel network = fabric_->seen_from(slot.nic->port);
    reply.bits_per_second = network.rate.bits_per_second();
    reply.round_trip = static_cast<std::uint64_t>(nanoseconds(network.round_trip));
    reply.trims = network.trims ? 1 : 0;
  }
  reply.link_up = slot.nic->link_up ? 1 : 0;
  if (!watch(slot.socket.get(), Source::process, &slot) ||
      (slot.process && !watch(slot.process.get(), Source::end, &slot)) ||
      !send_struct(slot.socket.get(), reply,
                   {memory->get(), slot.doorbell.get(), doorbell_.get()})) {
    return fail(ErrorCode::io_error, srd::errno_text("weftd: answering a process"));
  }
  events_.note("attach", {{"host", slot.nic->host},
                          {"nic", slot.nic->index},
                          {"attachment", slot.id},
                          {"pid", slot.pid},
                          {"again", request.attachment != 0}});
  return {};
}

void Daemon::hear_process(Slot& slot) {
  // An attached process has nothing to say: whatever comes is its end, or nonsense.
  if (receive_message(slot.socket.get()).state != Received::State::nothing) {
    doom(slot);
  }
}

void Daemon::detach_doomed() {
  while (!doomed_.empty()) {  // the end of one may doom others
    std::vector<Slot*> batch;
    batch.swap(doomed_);
    std::sort(batch.begin(), batch.end());
    batch.erase(std::unique(batch.begin(), batch.end()), batch.end());
    for (Slot* slot : batch) {
      // Its last words, above all acknowledgements, came between our last look at its ring and its
      // end.
      constexpr int kMostBursts = 1024;
      for (int burst = 0; burst < kMostBursts && !slot->port.broken() &&
                          switchboard_.pump(srd::monotonic_now(), *slot) != 0;
           ++burst) {
      }
      detach(*slot);
    }
  }
}

void Daemon::doom(Slot& slot) {
  if (!slot.doomed) {
    slot.doomed = true;
    doomed_.push_back(&slot);
  }
}

// Who cannot be told, as it reads nothing, would go on writing past weftd: it loses its place
// instead, and asks for it again when it looks.
void Daemon::take_ring_back(Slot& from, const Slot& peer) {
  DirectNotice notice;
  notice.header.type = AttachMessage::undirect;
  notice.peer = peer.nic->address.bytes;
  notice.attachment = peer.id;
  if (!send_struct(from.socket.get(), notice)) {
    doom(from);
  }
  from.port.raise_notice();
}

void Daemon::detach(Slot& slot) {
  events_.note("detach", {{"host", slot.nic->host},
                          {"nic", slot.nic->index},
                          {"attachment", slot.id},
                          {"pid", slot.pid},
                          {"broken_ring", slot.port.broken()}});
  for (auto pair = direct_pairs_.begin(); pair != direct_pairs_.end();) {
    if (pair->first != &slot && pair->second != &slot) {
      ++pair;
      continue;
    }
    Slot& other = pair->first == &slot ? *pair->second : *pair->first;
    take_ring_back(other, slot);
    --other.direct_pairs;
    pair = direct_pairs_.erase(pair);
  }
  unwatch(slot.socket.get());
  if (slot.process) {
    unwatch(slot.process.get());
  }
  if (fabric_ != nullptr) {
    fabric_->call_in_all(slot.loans);  // what it has sent is on its way
  }
  switchboard_.forget(slot);
  plant_.vacate(slot);
}

void Daemon::tell_of_link(Slot& slot) {
  LinkNotice notice;
  notice.up = slot.nic->link_up ? 1 : 0;
  if (!send_struct(slot.socket.get(), notice)) {
    doom(slot);  // it hears the state when it is back
  }
  slot.port.raise_notice();
}

void Daemon::consider_direct(Slot& from, Slot& to) {
  const std::pair<Slot*, Slot*> pair{std::min(&from, &to), std::max(&from, &to)};
  if (fabric_ != nullptr || !options_.direct_rings || !from.direct_rings || !to.direct_rings ||
      &from == &to || direct_pairs_.contains(pair)) {
    return;
  }
  // A process that has no room for one more would not read it, and nobody would know.
  constexpr std::size_t kMost = srd::RingIo::kMaxDirectPorts;
  if (from.direct_pairs >= kMost || to.direct_pairs >= kMost) {
    return;
  }
  const std::size_t bytes = direct_pairs_.size() < kLargeDirectRings
                                ? std::max(from.ring_bytes, to.ring_bytes)
                                : std::min(kSmallRing, std::max(from.ring_bytes, to.ring_bytes));
  const auto memory = srd::RingPort::create_memory(bytes);
  if (!memory) {
    return;  // the way through weftd remains
  }
  const auto tell = [&](const Slot& slot, const Slot& peer, std::uint32_t end) {
    DirectNotice notice;
    notice.header.type = AttachMessage::direct;
    notice.peer = peer.nic->address.bytes;
    notice.attachment = peer.id;
    notice.ring_bytes = static_cast<std::uint32_t>(bytes);
    notice.end = end;
    return send_struct(slot.socket.get(), notice, {memory->get(), peer.doorbell.get()});
  };
  // The receiver first: whoever has the ring may use it at once.
  if (tell(to, from, 0)) {
    if (tell(from, to, 1)) {
      direct_pairs_.insert(pair);
      ++from.direct_pairs;
      ++to.direct_pairs;
    } else {
      take_ring_back(to, from);  // `from` may have died just now: nobody would read that ring
    }
  }
  to.port.raise_notice();
  from.port.raise_notice();
}

}  // namespace weft::emu
