// Owns how groups and windows come to be and end, and what members tell each other for it.
//
// Every member tells every other one its name for the group (join), and of each window its part.
// A step is done when all have told and, for joining, when all have acknowledged: so a member that
// goes on is known to all others. While something is awaited from a member, a message that it can
// never receive is kept under way to it, whose failure says that the member is no more.
#include <algorithm>

#include "integration/nccl/core/rma.hpp"

namespace weft::nccl {
namespace {

constexpr std::uint32_t kMagic = 0x57454652;  // "WEFR"
constexpr std::uint16_t kHandleVersion = 1;
// Of windows: a key for the endpoints of connections opens none of them.
constexpr std::uint32_t kWindowDomain = 2;

}  // namespace

Rma::Rma(srd::Engine& engine, const RmaConfig& config)
    : config_(config),
      rng_(config.nic.seed),
      engine_(engine),
      links_(engine, config.nic.first_qpn, static_cast<std::uint32_t>(rng_.next()), kWindowDomain),
      sent_(Links::kSendBuffers) {}

Result<std::unique_ptr<Rma>> Rma::create(srd::Engine& engine, const RmaConfig& config) {
  std::unique_ptr<Rma> made(new Rma(engine, config));
  if (auto opened = made->links_.open(); !opened) {
    return tl::unexpected(opened.error());
  }
  return made;
}

Rma::Group* Rma::find(std::uint16_t number) {
  const auto found = groups_.find(number);
  return found == groups_.end() ? nullptr : &found->second;
}

Rma::Group* Rma::find(const Identity& name) {
  Group* const found = find(name.number);
  return found != nullptr && found->name == name ? found : nullptr;
}

std::uint32_t Rma::restarts_of(srd::PeerId peer) const {
  const auto history = engine_.history_of(peer);
  return history ? history->restarts : 0;
}

std::uint32_t Rma::listen(ListenHandle& handle) {
  const std::uint32_t id = ++last_listener_;
  Listener& listener = listeners_[id];
  listener.secret = rng_.next();
  handle = {};
  handle.magic = kMagic;
  handle.version = kHandleVersion;
  handle.attachment = config_.nic.attachment.value();
  handle.address = config_.nic.address.bytes;
  handle.control = links_.control().value();
  handle.qkey = links_.qkey();
  handle.listener = id;
  handle.secret = listener.secret;
  return id;
}

void Rma::close_listener(std::uint32_t id) {
  const auto found = listeners_.find(id);
  if (found == listeners_.end()) {
    return;
  }
  for (const auto& [rank, join] : found->second.joins) {
    reject(join);
  }
  listeners_.erase(found);
}

Outcome Rma::join(std::span<const ListenHandle> handles, std::uint32_t rank, std::uint32_t listener,
                  std::uint16_t& group) {
  const auto own = listeners_.find(listener);
  if (handles.empty() || handles.size() > kMaxRanks || rank >= handles.size() ||
      own == listeners_.end() || groups_.size() == kMaxRanks - 1) {
    return Outcome::invalid_argument;
  }
  std::vector<Member> members(handles.size());
  for (std::size_t i = 0; i < handles.size(); ++i) {
    const ListenHandle& handle = handles[i];
    if (i == rank) {
      continue;
    }
    if (handle.magic.value() != kMagic || handle.version.value() != kHandleVersion) {
      return Outcome::invalid_argument;
    }
    const auto peer =
        engine_.peer(srd::Address{handle.address}, srd::AttachmentId{handle.attachment.value()});
    if (!peer) {
      return Outcome::system_error;
    }
    members[i].partner = {*peer, srd::Qpn{handle.control.value()}, handle.qkey.value()};
    members[i].handle = handle;
  }
  do {
    ++last_group_;
  } while (last_group_ == 0 || groups_.contains(last_group_));
  Group& made = groups_[last_group_];
  made.name = {last_group_, static_cast<std::uint32_t>(rng_.next()) | 1U};
  made.rank = rank;
  made.listener = listener;
  made.secret = own->second.secret;
  made.members = std::move(members);
  made.members[rank].joined = made.members[rank].told = true;
  for (std::uint32_t i = 0; i < handles.size(); ++i) {
    if (i != rank) {
      tell_join(made, i);
    }
  }
  // Some may have been quicker than our caller.
  for (const auto& [from, early] : std::exchange(own->second.joins, {})) {
    if (!accept_join(made, from, early)) {
      reject(early);
    }
  }
  group = made.name.number;
  return Outcome::ok;
}

void Rma::tell_join(Group& group, std::uint32_t rank) {
  Member& member = group.members[rank];
  if (!member.joined) {
    member.restarts = restarts_of(member.partner.peer);
  }
  RmaMessage message;
  message.kind = static_cast<std::uint8_t>(RmaKind::join);
  message.number = member.handle.listener.value();
  message.place = member.handle.secret.value();
  message.amount = group.members.size();
  send(group, rank, message);
}

// `told` comes with the acknowledgement of our join, `joined` with the other's: both are needed, or
// a member could send a window to one that does not know its name yet and would reject it.
RmaStep Rma::joined(std::uint16_t number) {
  const Group* const group = find(number);
  if (group == nullptr || group->failure) {
    return RmaStep::failed;
  }
  return std::ranges::all_of(group->members,
                             [](const Member& one) { return one.joined && one.told; })
             ? RmaStep::done
             : RmaStep::waits;
}

bool Rma::has_failed(std::uint16_t number) {
  const Group* const group = find(number);
  return group == nullptr || group->failure.has_value();
}

Outcome Rma::failure_of(std::uint16_t number) {
  const Group* const group = find(number);
  return group == nullptr ? Outcome::invalid_usage : group->failure.value_or(Outcome::ok);
}

// Keys first, as for connections. A member that has failed for us may live and wait for us.
void Rma::close(std::uint16_t number) {
  Group* const group = find(number);
  if (group == nullptr) {
    return;
  }
  for (const auto& [id, window] : group->windows) {
    (void)engine_.memory().erase(window.key);
  }
  abandon(*group, std::nullopt);
  for (std::uint32_t i = 0; i < group->members.size(); ++i) {
    const Member& member = group->members[i];
    if (i != group->rank && member.joined) {
      RmaMessage message;
      message.kind = static_cast<std::uint8_t>(RmaKind::leave);
      send(*group, i, message);
    }
  }
  groups_.erase(number);
}

Outcome Rma::register_window(std::uint16_t number, std::byte* data, std::size_t size,
                             std::uint32_t& id) {
  Group* const group = find(number);
  if (group == nullptr) {
    return Outcome::invalid_argument;
  }
  Window window;
  window.data = data;
  window.size = size;
  window.parts.resize(group->members.size());
  bool missing = data == nullptr || size == 0;
  if (!missing) {
    using srd::Access;
    const auto key = engine_.memory().insert(
        {.data = data,
         .address = reinterpret_cast<std::uintptr_t>(data),
         .length = size,
         .access = Access::local_write | Access::remote_read | Access::remote_write,
         .domain = kWindowDomain});
    missing = !key.has_value();
    window.key = key.value_or(srd::RegionKey{});
  }
  id = group->next_window++;
  Part& own = window.parts[group->rank];
  own = {true, missing, reinterpret_cast<std::uintptr_t>(data), size, window.key};
  for (std::uint32_t i = 0; i < group->members.size(); ++i) {
    if (const auto early = group->early.find({id, i}); early != group->early.end()) {
      window.parts[i] = early->second;
      group->early.erase(early);
    }
    if (i != group->rank) {
      RmaMessage message;
      message.kind = static_cast<std::uint8_t>(RmaKind::window);
      message.flags = missing ? kNoMemory : 0;
      message.number = id;
      message.key = window.key.value();
      message.place = own.address;
      message.amount = size;
      send(*group, i, message);
    }
  }
  group->windows[id] = std::move(window);
  return Outcome::ok;
}

RmaStep Rma::registered(std::uint16_t number, std::uint32_t id) {
  const Group* const group = find(number);
  if (group == nullptr || group->failure) {
    return RmaStep::failed;
  }
  const auto window = group->windows.find(id);
  if (window == group->windows.end()) {
    return RmaStep::failed;
  }
  // Also where the answer is clear before all have told: nobody runs ahead of the others.
  bool waits = false;
  bool missing = false;
  for (std::size_t i = 0; i < group->members.size(); ++i) {
    const Part& part = window->second.parts[i];
    if (!part.known && group->members[i].left) {
      return RmaStep::failed;
    }
    waits = waits || !part.known;
    missing = missing || part.missing;
  }
  if (waits) {
    return RmaStep::waits;
  }
  return missing ? RmaStep::failed : RmaStep::done;
}

bool Rma::deregister(std::uint16_t number, std::uint32_t id) {
  Group* const group = find(number);
  if (group == nullptr || !group->windows.contains(id)) {
    return false;
  }
  (void)engine_.memory().erase(group->windows[id].key);
  group->windows.erase(id);
  bool lent = false;
  for (const Operation& one : operations_) {
    if (one.group == group->name && one.window == id) {
      lent = lent || one.in_engine != 0;
      if (one.stage == Stage::moving && one.posted != one.size) {
        fail_member(*group, one.rank, Outcome::invalid_usage);
      }
    }
  }
  if (lent) {
    engine_.revoke([&](std::uint64_t word) {
      const Cookie cookie = Cookie::unpack(word);
      return cookie.lane == Lane::remote && operations_[cookie.index].group == group->name &&
             operations_[cookie.index].window == id;
    });
  }
  return true;
}

// Queues a message behind those that wait for a buffer already, so none of them is starved.
void Rma::send(Group& group, std::uint32_t rank, RmaMessage message, std::uint32_t operation) {
  const Member& member = group.members[rank];
  message.to_group = member.group.number;
  message.to_nonce = member.group.nonce;
  message.from_group = group.name.number;
  message.from_nonce = group.name.nonce;
  message.from_rank = group.rank;
  message.to_rank = rank;
  message.qkey = links_.qkey();
  (void)outbox_.push(
      {member.partner, message, {static_cast<RmaKind>(message.kind), group.name, rank, operation}});
  post_outbox();
}

// A signal whose operation has failed meanwhile stays here: it would hold up the others.
void Rma::post_outbox() {
  for (; !outbox_.empty(); outbox_.pop()) {
    const Letter& next = outbox_.front();
    if (next.purpose.kind == RmaKind::signal &&
        operations_[next.purpose.operation].stage == Stage::ended) {
      on_signal_sent(nullptr, operations_[next.purpose.operation], srd::Status::flushed);
      continue;
    }
    const auto buffer = links_.try_send(next.to, std::as_bytes(std::span{&next.message, 1}));
    if (!buffer) {
      return;
    }
    sent_[*buffer] = next.purpose;
  }
}

// The member takes no more, and what is under way to it ends. One failed member is a failed group:
// NCCL goes no further, and members that wait for each other must not wait for ever.
void Rma::fail_member(Group& group, std::uint32_t rank, Outcome outcome) {
  Member& member = group.members[rank];
  if (member.failure) {
    return;
  }
  member.failure = outcome;
  group.failure = group.failure.value_or(outcome);
  ++counters_.failed_members;
  for (auto& [id, context] : group.contexts) {
    Channel& channel = context.channels[rank];
    for (const std::uint32_t slot : channel.operations) {
      operations_[slot].listed = false;
      end(operations_[slot], outcome);
      recycle(operations_[slot]);
    }
    channel.operations.clear();
    channel.posted = 0;
  }
}

void Rma::fail_all(const RemoteEnd& partner, bool at_peer) {
  for (auto& [number, group] : groups_) {
    for (std::uint32_t i = 0; i < group.members.size(); ++i) {
      const RemoteEnd& one = group.members[i].partner;
      if (i != group.rank && (at_peer ? one.peer == partner.peer : one == partner)) {
        fail_member(group, i, Outcome::remote_error);
      }
    }
  }
}

// Tells whether this member's silence stops us: only then is it watched.
bool Rma::waits_for(const Group& group, std::uint32_t rank) {
  if (rank == group.rank || group.members[rank].failure) {
    return false;
  }
  return !group.members[rank].joined || std::ranges::any_of(group.windows, [rank](const auto& one) {
    return !one.second.parts[rank].known;
  });
}

// Whoever waits for a signal reads its own memory and asks us for nothing. So as long as a group is
// in use, each of its members is asked from time to time whether it is there.
void Rma::ask_members(TimePoint now) {
  for (auto& [number, group] : groups_) {
    for (std::uint32_t i = 0; i < group.members.size() && !group.contexts.empty(); ++i) {
      Member& member = group.members[i];
      if (i != group.rank && member.joined && !member.left && !member.failure && !member.asked &&
          now >= member.ask_next) {
        member.asked = true;
        member.ask_next = now + kAskEvery;
        RmaMessage message;
        message.kind = static_cast<std::uint8_t>(RmaKind::alive);
        send(group, i, message);
      }
    }
  }
}

void Rma::check(TimePoint now) {
  ask_members(now);
  for (auto& [peer, one] : watches_) {
    one.wanted = false;
  }
  for (const auto& [number, group] : groups_) {
    for (std::uint32_t i = 0; i < group.members.size(); ++i) {
      if (!waits_for(group, i)) {
        continue;
      }
      const RemoteEnd& partner = group.members[i].partner;
      Watch& one = watches_[partner.peer.value()];
      one.wanted = true;
      if (!one.under_way) {
        srd::SendRequest request;
        request.peer = partner.peer;
        request.source = links_.watch();
        request.destination = partner.watch();
        request.qkey = partner.qkey;
        request.cookie = Cookie{Lane::watch, 0, partner.peer.value()}.pack();
        one.under_way = engine_.post(request) == srd::PostResult::accepted;
        one.partner = partner;
      }
    }
  }
  for (const auto& [peer, one] : watches_) {
    if (one.under_way && !one.wanted) {
      engine_.flush(srd::PeerId{peer}, links_.watch());
    }
  }
}

// A later process has never heard of the group. But the handle of a member that has not joined yet
// may well be of the present life, and only the engine has just found out: on_sent() asks again.
void Rma::notice_restarts() {
  seen_restarts_ = engine_.counters().peer_restarts;
  for (auto& [number, group] : groups_) {
    for (std::uint32_t i = 0; i < group.members.size(); ++i) {
      Member& member = group.members[i];
      const std::uint32_t restarts = restarts_of(member.partner.peer);
      if (i != group.rank && member.restarts != restarts && (member.joined || member.told)) {
        fail_member(group, i, Outcome::remote_error);
      }
    }
  }
}

}  // namespace weft::nccl
