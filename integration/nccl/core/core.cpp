// Owns making and closing connections, and their memory.
//
// A connection is asked for by its sender (connect(), a hello) and made by its receiver (accept(),
// a welcome). Both calls return at once and are repeated by NCCL until the connection is there; the
// handle, which NCCL hands back each time, remembers that it was asked for. Closed connections stay
// in the table until the engine holds no work of theirs, and their numbers rest for a while, so
// that late messages find no new owner.
//
// Before a close or a deregistration returns, the keys of the memory are gone, so that no write of
// the partner finds it, and what was lent to the engine is revoked: NCCL may unmap it at once.
#include "integration/nccl/core/core.hpp"

#include <algorithm>

namespace weft::nccl {
namespace {

constexpr std::uint32_t kMagic = 0x5745464E;  // "WEFN"
constexpr std::uint16_t kHandleVersion = 2;

}  // namespace

Core::Core(srd::Engine& engine, const CoreConfig& config)
    : config_(config),
      rng_(config.seed),
      engine_(engine),
      links_(engine, config.first_qpn, static_cast<std::uint32_t>(rng_.next()), kDomain,
             kMaxMessage) {}

Result<std::unique_ptr<Core>> Core::create(srd::Engine& engine, const CoreConfig& config) {
  std::unique_ptr<Core> core(new Core(engine, config));
  if (auto opened = core->links_.open(); !opened) {
    return tl::unexpected(opened.error());
  }
  return core;
}

// A number is used again only when 256 others have rested longer, or when there is no other one.
template <class C>
C* Core::Table<C>::make() {
  constexpr std::size_t kResting = 256;
  std::size_t number = ends.size();
  if (resting.size() > kResting || (number == kMaxConnections && !resting.empty())) {
    number = resting.front();
    resting.pop();
  } else if (number == kMaxConnections) {
    return nullptr;
  } else {
    ends.emplace_back();
  }
  ends[number] = std::make_unique<C>();
  ends[number]->number = static_cast<std::uint16_t>(number);
  return ends[number].get();
}

template <class C>
C* Core::make_end(Table<C>& table, const RemoteEnd& partner) {
  C* const made = table.make();
  if (made != nullptr) {
    // Never 0, which a message has that names no end.
    made->nonce = static_cast<std::uint32_t>(rng_.next()) | 1U;
    made->partner = partner;
    made->restarts = restarts_of(partner.peer);
    made->owner = config_.owner;
  }
  return made;
}

std::uint32_t Core::listen(ListenHandle& handle) {
  const std::uint32_t id = ++last_listener_;
  Listener& listener = listeners_[id];
  listener.secret = rng_.next();
  handle = {};
  handle.magic = kMagic;
  handle.version = kHandleVersion;
  handle.attachment = config_.attachment.value();
  handle.address = config_.address.bytes;
  handle.control = links_.control().value();
  handle.qkey = links_.qkey();
  handle.listener = id;
  handle.secret = listener.secret;
  return id;
}

Outcome Core::connect(ListenHandle& handle, SendComm*& connection) {
  connection = nullptr;
  if (handle.magic.value() != kMagic || handle.version.value() != kHandleVersion) {
    return Outcome::invalid_argument;
  }
  if (handle.asked.value() == 0) {
    const auto peer =
        engine_.peer(srd::Address{handle.address}, srd::AttachmentId{handle.attachment.value()});
    if (!peer) {
      return Outcome::system_error;
    }
    const RemoteEnd partner{*peer, srd::Qpn{handle.control.value()}, handle.qkey.value()};
    SendComm* const made = make_end(senders_, partner);
    if (made == nullptr) {
      return Outcome::system_error;
    }
    made->ask(links_, handle.listener.value(), handle.secret.value());
    handle.asked = 1;
    handle.number = made->number;
    handle.nonce = made->nonce;
    return Outcome::ok;
  }
  SendComm* const asked = senders_.find(handle.number.value());
  if (asked == nullptr || asked->nonce != handle.nonce.value()) {
    return Outcome::invalid_usage;
  }
  if (asked->state == Comm::State::connecting) {
    return Outcome::ok;
  }
  // NCCL has no connection yet that it could close, so the end is closed here.
  if (asked->state == Comm::State::failed) {
    const Outcome failure = asked->failure;
    close(*asked);
    return failure;
  }
  --asked->pending;  // the answer has come
  connection = asked;
  return Outcome::ok;
}

// NCCL never needs this, because it repeats connect() until an answer comes; Gloo closes pairs that
// are half connected.
void Core::call_off(const ListenHandle& handle) {
  SendComm* const asked = senders_.find(handle.number.value());
  if (handle.asked.value() != 0 && asked != nullptr && asked->nonce == handle.nonce.value()) {
    close(*asked);
  }
}

Outcome Core::accept(std::uint32_t id, ReceiveComm*& connection) {
  connection = nullptr;
  const auto found = listeners_.find(id);
  if (found == listeners_.end()) {
    return Outcome::invalid_argument;
  }
  Listener& listener = found->second;
  if (listener.waiting.empty()) {
    return Outcome::ok;
  }
  const Hello hello = listener.waiting.front();
  listener.waiting.pop();
  ReceiveComm* const made = make_end(receivers_, hello.partner);
  if (made == nullptr) {
    return Outcome::system_error;
  }
  made->partner_number = hello.number;
  made->partner_nonce = hello.nonce;
  made->state = Comm::State::open;
  ControlHeader welcome;
  welcome.kind = static_cast<std::uint8_t>(ControlKind::welcome);
  welcome.to_number = hello.number;
  welcome.to_nonce = hello.nonce;
  welcome.from_number = made->number;
  welcome.from_nonce = made->nonce;
  links_.send(hello.partner, welcome);
  connection = made;
  return Outcome::ok;
}

// A peer that was not accepted is told so. Otherwise it would repeat its connect() for ever.
void Core::close_listener(std::uint32_t id) {
  const auto found = listeners_.find(id);
  if (found == listeners_.end()) {
    return;
  }
  for (auto& waiting = found->second.waiting; !waiting.empty(); waiting.pop()) {
    ControlHeader refuse;
    refuse.kind = static_cast<std::uint8_t>(ControlKind::refuse);
    refuse.to_number = waiting.front().number;
    refuse.to_nonce = waiting.front().nonce;
    links_.send(waiting.front().partner, refuse, false);
  }
  listeners_.erase(found);
}

// Keys first: from here on no write of the partner finds the memory; a late packet meets bad_key.
void Core::forget_memory(Comm& connection) {
  for (const auto& region : connection.regions) {
    (void)engine_.memory().erase(region->key);
  }
  connection.regions.clear();
}

void Core::say_goodbye(const Comm& connection, std::uint8_t flags) {
  ControlHeader goodbye;
  goodbye.kind = static_cast<std::uint8_t>(ControlKind::goodbye);
  goodbye.flags = flags;
  goodbye.to_number = connection.partner_number;
  goodbye.to_nonce = connection.partner_nonce;
  links_.send(connection.partner, goodbye, false);
}

void Core::close(SendComm& connection) {
  connection.revoke(links_, nullptr);
  forget_memory(connection);
  connection.goodbye_due = connection.owes_goodbye();
  goodbyes_due_ += connection.goodbye_due ? 1 : 0;
  connection.state = Comm::State::closed;
  finish_closing(connection);
}

void Core::close(ReceiveComm& connection) {
  forget_memory(connection);
  if (connection.owes_goodbye()) {
    say_goodbye(connection, kToSender);
  }
  connection.state = Comm::State::closed;
  receivers_.remove(connection.number);
}

Result<CommRegion*> Core::register_memory(SendComm& connection, std::byte* data, std::size_t size) {
  // No peer reaches a sender's memory, so it has no key.
  return add_region(connection, data, size, [] { return srd::RegionKey{}; });
}

Result<CommRegion*> Core::register_memory(ReceiveComm& connection, std::byte* data,
                                          std::size_t size) {
  return add_region(connection, data, size, [&] {
    return engine_.memory().insert({.data = data,
                                    .address = reinterpret_cast<std::uintptr_t>(data),
                                    .length = size,
                                    .access = srd::Access::local_write | srd::Access::remote_write,
                                    .domain = kDomain,
                                    .placement = srd::Placement::lines});
  });
}

// NCCL registers the same memory again for several uses of a connection; it counts them here and
// deregisters as often.
template <class F>
Result<CommRegion*> Core::add_region(Comm& connection, std::byte* data, std::size_t size,
                                     F&& make_key) {
  for (const auto& region : connection.regions) {
    if (region->data == data && region->size == size) {
      ++region->uses;
      return region.get();
    }
  }
  const Result<srd::RegionKey> key = make_key();
  if (!key) {
    return tl::unexpected(key.error());
  }
  connection.regions.push_back(std::make_unique<CommRegion>(CommRegion{*key, data, size, 1}));
  return connection.regions.back().get();
}

// Gives the region out of the table once its last use is gone; `found` tells a use that was given
// back from a region that is not known.
template <class C>
std::unique_ptr<CommRegion> Core::take_region(C& connection, const CommRegion* region,
                                              bool& found) {
  auto& regions = connection.regions;
  const auto at = std::find_if(regions.begin(), regions.end(),
                               [region](const auto& one) { return one.get() == region; });
  found = at != regions.end();
  if (!found || --(*at)->uses != 0) {
    return nullptr;
  }
  std::unique_ptr<CommRegion> taken = std::move(*at);
  regions.erase(at);
  return taken;
}

bool Core::deregister(SendComm& connection, const CommRegion* region) {
  bool found = false;
  if (const auto taken = take_region(connection, region, found)) {
    connection.revoke(links_, taken.get());
  }
  return found;
}

bool Core::deregister(ReceiveComm& connection, const CommRegion* region) {
  bool found = false;
  if (const auto taken = take_region(connection, region, found)) {
    // First the key, so that no late write finds the memory; then the requests that still wait for
    // it.
    (void)engine_.memory().erase(taken->key);
    connection.revoke(taken.get());
  }
  return found;
}

bool Core::idle() const { return engine_.outstanding() == 0 && !links_.has_backlog(); }

}  // namespace weft::nccl
