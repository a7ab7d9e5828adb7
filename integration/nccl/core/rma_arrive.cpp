// Owns what the engine tells the groups: messages that arrived, and work that ended.
//
// Any message may be malformed, late, or for a group that is gone. Its sender is told where it
// would otherwise believe that a signal was added or wait for ever (reject).
#include "integration/nccl/core/rma.hpp"

namespace weft::nccl {

using srd::Completion;
using srd::Status;

void Rma::progress(TimePoint now) {
  if (engine_.counters().peer_restarts != seen_restarts_) {
    notice_restarts();
  }
  post_outbox();
  for (std::size_t left = stalled_.size(); left > 0; --left) {
    const Stalled next = stalled_.front();
    stalled_.pop();
    Group* const group = find(next.group);
    if (group != nullptr && group->contexts.contains(next.context)) {
      advance(*group, next.context, next.rank);
    }
  }
  if (next_check_ == kNever || now >= next_check_) {
    next_check_ = now + kCheckEvery;
    check(now);
  }
}

void Rma::take(const Completion& completion) {
  if (completion.kind == Completion::Kind::receive_write_imm) {
    ++counters_.strays;  // none of ours has immediate data
    return;
  }
  const Cookie cookie = Cookie::unpack(completion.cookie);
  switch (cookie.lane) {
    case Lane::control_receive:
      if (completion.status == Status::ok) {
        on_message(completion, links_.received(cookie.index, completion.length));
      }
      if (completion.status != Status::flushed) {
        links_.post_receive(cookie.index);
      }
      break;
    case Lane::control_send:
      (void)links_.on_sent(cookie.index);
      on_sent(std::exchange(sent_[cookie.index], {}), completion.status);
      break;
    case Lane::remote:
      on_part(cookie.index, completion.status);
      break;
    case Lane::watch: {
      Watch& one = watches_[cookie.index];
      one.under_way = false;
      if (completion.status != Status::flushed && completion.status != Status::peer_restarted) {
        fail_all(one.partner, completion.status == Status::unresponsive ||
                                  completion.status == Status::unreachable);
      }
      break;
    }
    case Lane::eager:
    case Lane::write:
      break;  // of connections only
  }
}

void Rma::on_message(const Completion& completion, std::span<const std::byte> bytes) {
  const auto message = parse_rma(bytes);
  if (!message) {
    ++counters_.malformed;
    return;
  }
  const auto kind = static_cast<RmaKind>(message->kind);
  if (kind == RmaKind::join) {
    on_join(completion, *message);
    return;
  }
  // Number, nonce, rank, the member's name for it and its peer must all be right.
  Group* const group = find({message->to_group.value(), message->to_nonce.value()});
  const std::uint32_t rank = message->from_rank.value();
  const bool member = group != nullptr && rank < group->members.size() && rank != group->rank &&
                      group->members[rank].partner.peer == completion.peer &&
                      (kind == RmaKind::reject ||
                       (group->members[rank].joined &&
                        group->members[rank].group ==
                            Identity{message->from_group.value(), message->from_nonce.value()}));
  if (!member) {
    reject(completion, *message);
    return;
  }
  switch (kind) {
    case RmaKind::window:
      on_window(*group, rank, *message);
      break;
    case RmaKind::signal:
      if (!on_signal(*group, *message) && !std::exchange(group->members[rank].rejected, true)) {
        RmaMessage answer;
        answer.kind = static_cast<std::uint8_t>(RmaKind::reject);
        send(*group, rank, answer);
      }
      break;
    case RmaKind::reject:
      fail_member(*group, rank, Outcome::remote_error);
      break;
    case RmaKind::leave:
      group->members[rank].left = true;
      break;
    case RmaKind::join:
    case RmaKind::alive:
      break;
  }
}

// To the listener if there is one, or to the group that has come of it.
void Rma::on_join(const Completion& completion, const RmaMessage& message) {
  const Join join{{completion.peer, completion.remote, message.qkey.value()},
                  {message.from_group.value(), message.from_nonce.value()},
                  message.amount.value(),
                  message.to_rank.value()};
  const std::uint32_t rank = message.from_rank.value();
  for (auto& [number, group] : groups_) {
    if (group.listener == message.number.value() && group.secret == message.place.value()) {
      if (!accept_join(group, rank, join)) {
        reject(join);
      }
      return;
    }
  }
  const auto listener = listeners_.find(message.number.value());
  if (listener != listeners_.end() && listener->second.secret == message.place.value() &&
      rank < kMaxRanks) {
    listener->second.joins[rank] = join;
    return;
  }
  reject(completion, message);
}

// False: its sender will never be a member by that name.
bool Rma::accept_join(Group& group, std::uint32_t rank, const Join& join) {
  if (rank >= group.members.size() || rank == group.rank ||
      !(group.members[rank].partner == join.partner)) {
    // It knows the secret, so it may be one that takes itself for another one.
    for (std::uint32_t i = 0; i < group.members.size(); ++i) {
      if (i != group.rank && !group.members[i].joined && group.members[i].partner == join.partner) {
        fail_member(group, i, Outcome::invalid_usage);
      }
    }
    return false;
  }
  Member& member = group.members[rank];
  // They must mean the same group; otherwise some would wait for members that do not exist.
  if (join.ranks != group.members.size()) {
    fail_member(group, rank, Outcome::invalid_usage);
    return true;
  }
  if (member.joined && !(member.group == join.group)) {
    return false;
  }
  member.joined = true;
  member.group = join.group;
  member.restarts = restarts_of(join.partner.peer);
  return true;
}

void Rma::on_window(Group& group, std::uint32_t rank, const RmaMessage& message) {
  const Part part{true, (message.flags & kNoMemory) != 0, message.place.value(),
                  message.amount.value(), srd::RegionKey{message.key.value()}};
  const std::uint32_t id = message.number.value();
  const auto window = group.windows.find(id);
  if (window != group.windows.end() && !window->second.parts[rank].known) {
    window->second.parts[rank] = part;
  } else if (id - group.next_window < kEarlyWindows) {
    group.early[{id, rank}] = part;
  } else {
    ++counters_.strays;
  }
}

bool Rma::on_signal(const Group& group, const RmaMessage& message) {
  const auto window = group.windows.find(message.number.value());
  const std::uint64_t offset = message.place.value();
  if (window == group.windows.end() || window->second.data == nullptr ||
      offset % sizeof(std::uint64_t) != 0 || !window->second.holds(offset, sizeof(std::uint64_t)) ||
      !add_to_word(window->second, offset, message.amount.value())) {
    return false;
  }
  ++counters_.signals_applied;
  return true;
}

// Never an answer to an answer, and only if there is room: nothing is stored for strangers.
void Rma::reject(const Completion& completion, const RmaMessage& message) {
  const auto kind = static_cast<RmaKind>(message.kind);
  if (kind == RmaKind::reject || kind == RmaKind::leave || kind == RmaKind::alive) {
    ++counters_.strays;
    return;
  }
  reject({{completion.peer, completion.remote, message.qkey.value()},
          {message.from_group.value(), message.from_nonce.value()},
          0,
          message.to_rank.value()});
}

void Rma::reject(const Join& join) {
  ++counters_.strays;
  RmaMessage answer;
  answer.kind = static_cast<std::uint8_t>(RmaKind::reject);
  answer.to_group = join.group.number;
  answer.to_nonce = join.group.nonce;
  answer.qkey = links_.qkey();
  answer.from_rank = join.as;
  (void)links_.try_send(join.partner, std::as_bytes(std::span{&answer, 1}));
}

void Rma::on_sent(const Purpose& purpose, Status status) {
  Group* const group = find(purpose.group);
  if (purpose.kind == RmaKind::signal) {
    on_signal_sent(group, operations_[purpose.operation], status);
  }
  if (group == nullptr) {
    return;
  }
  Member& member = group->members[purpose.rank];
  member.asked = member.asked && purpose.kind != RmaKind::alive;
  if (status == Status::flushed) {
    return;
  }
  if (status == Status::ok) {
    member.told = member.told || purpose.kind == RmaKind::join;
    return;
  }
  if (purpose.kind == RmaKind::leave) {
    return;
  }
  if (purpose.kind == RmaKind::join && status == Status::peer_restarted && !member.failure) {
    tell_join(*group, purpose.rank);
    return;
  }
  fail_member(*group, purpose.rank, Outcome::remote_error);
  if (status == Status::unresponsive || status == Status::unreachable) {
    fail_all(member.partner, true);
  }
}

void Rma::on_signal_sent(Group* group, Operation& operation, Status status) {
  --operation.in_engine;
  if (group != nullptr && operation.stage == Stage::signalled && status == Status::ok) {
    end(operation, Outcome::ok);
    settle_front(*group, operation.context, operation.rank);
  } else {
    recycle(operation);
  }
}

void Rma::on_part(std::uint32_t slot, Status status) {
  Operation& operation = operations_[slot];
  --operation.in_engine;
  Group* const group = find(operation.group);
  if (group == nullptr || operation.stage == Stage::ended) {
    recycle(operation);
    return;
  }
  if (status != Status::ok) {
    fail_member(*group, operation.rank,
                status == Status::local_protection || status == Status::flushed
                    ? Outcome::invalid_usage
                    : Outcome::remote_error);
    if (status == Status::unresponsive || status == Status::unreachable) {
      fail_all(group->members[operation.rank].partner, true);
    }
    return;
  }
  if (operation.in_engine == 0 && operation.posted == operation.size) {
    on_moved(*group, operation);
  }
}

}  // namespace weft::nccl
