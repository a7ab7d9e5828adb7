// Owns puts, gets and signals at the side that asks for them.
//
// An operation moves its bytes in parts that the engine takes, and may then have a signal to send.
// All operations of a context towards one member are in a channel, in the order in which they were
// asked for. Parts are posted in that order, too; where the engine has no room the channel waits
// for its turn (stalled_). Only a strong signal waits for others: until its operation is the
// oldest.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "integration/nccl/core/rma.hpp"
#include "srd/base/lent_memory.hpp"

namespace weft::nccl {

Outcome Rma::create_context(std::uint16_t number, std::uint32_t stride, std::uint32_t& id) {
  Group* const group = find(number);
  if (group == nullptr || stride == 0 || group->members.size() % stride != 0) {
    return Outcome::invalid_argument;
  }
  id = group->next_context++;
  group->contexts[id] = {stride, std::vector<Channel>(group->members.size())};
  return Outcome::ok;
}

void Rma::destroy_context(std::uint16_t number, std::uint32_t id) {
  if (Group* const group = find(number)) {
    abandon(*group, id);
    group->contexts.erase(id);
  }
}

// What every operation has to meet. `group` is set if it may begin.
Outcome Rma::admit(Group*& group, std::uint16_t number, std::uint32_t context, std::uint32_t rank) {
  Group* const found = find(number);
  if (found == nullptr || !found->contexts.contains(context) || rank >= found->members.size()) {
    return Outcome::invalid_argument;
  }
  const Member& member = found->members[rank];
  if (member.failure) {
    return *member.failure;
  }
  if (member.left) {
    return Outcome::remote_error;
  }
  const auto ranks = static_cast<std::uint32_t>(found->members.size());
  if ((rank + ranks - found->rank) % ranks % found->contexts[context].stride != 0 ||
      !member.joined) {
    return Outcome::invalid_usage;
  }
  group = found;
  return Outcome::ok;
}

Outcome Rma::put(std::uint16_t number, std::uint32_t context, std::uint32_t rank, RmaPlace from,
                 std::size_t size, RmaPlace to, const std::optional<RmaSignal>& signal,
                 Request*& out) {
  out = nullptr;
  Group* group = nullptr;
  if (const Outcome refusal = admit(group, number, context, rank); group == nullptr) {
    return refusal;
  }
  const auto source = group->windows.find(from.window);
  const auto target = group->windows.find(to.window);
  const bool moves = size != 0;
  if (moves && (source == group->windows.end() || target == group->windows.end() ||
                !source->second.holds(from.offset, size))) {
    return Outcome::invalid_argument;
  }
  const auto inside = [](const Part& part, std::uint64_t offset, std::uint64_t length) {
    return part.known && !part.missing && offset <= part.size && length <= part.size - offset;
  };
  if (moves && !inside(target->second.parts[rank], to.offset, size)) {
    return Outcome::invalid_argument;
  }
  if (signal) {
    const auto word = group->windows.find(signal->word.window);
    if (word == group->windows.end() || signal->word.offset % sizeof(std::uint64_t) != 0 ||
        !inside(word->second.parts[rank], signal->word.offset, sizeof(std::uint64_t))) {
      return Outcome::invalid_argument;
    }
  }
  if (is_full(group->contexts[context].channels[rank])) {
    return Outcome::ok;
  }
  Operation& made = make_operation(*group, context, rank);
  made.size = size;
  if (moves) {
    made.window = from.window;
    made.local = source->second.data + from.offset;
    made.address = target->second.parts[rank].address + to.offset;
    made.key = target->second.parts[rank].key;
  }
  made.signal = signal;
  ++counters_.puts;
  begin(*group, made, out);
  return Outcome::ok;
}

Outcome Rma::get(std::uint16_t number, std::uint32_t context, std::uint32_t rank, RmaPlace from,
                 std::size_t size, RmaPlace to, Request*& out) {
  out = nullptr;
  Group* group = nullptr;
  if (const Outcome refusal = admit(group, number, context, rank); group == nullptr) {
    return refusal;
  }
  const auto source = group->windows.find(from.window);
  const auto target = group->windows.find(to.window);
  if (source == group->windows.end() || target == group->windows.end() ||
      !target->second.holds(to.offset, size)) {
    return Outcome::invalid_argument;
  }
  const Part& part = source->second.parts[rank];
  if (!part.known || part.missing || from.offset > part.size || size > part.size - from.offset) {
    return Outcome::invalid_argument;
  }
  if (is_full(group->contexts[context].channels[rank])) {
    return Outcome::ok;
  }
  Operation& made = make_operation(*group, context, rank);
  made.reads = true;
  made.size = size;
  made.window = to.window;
  made.local = target->second.data + to.offset;
  made.address = part.address + from.offset;
  made.key = part.key;
  ++counters_.gets;
  begin(*group, made, out);
  return Outcome::ok;
}

// What has ended behind one that has not counts no more: the caller is done with it.
bool Rma::is_full(const Channel& channel) const {
  const auto open = [this](std::uint32_t slot) { return operations_[slot].stage != Stage::ended; };
  return channel.operations.size() >= kMaxOutstanding &&
         static_cast<std::size_t>(std::ranges::count_if(channel.operations, open)) >=
             kMaxOutstanding;
}

Rma::Operation& Rma::make_operation(Group& group, std::uint32_t context, std::uint32_t rank) {
  if (free_operations_.empty()) {
    free_operations_.push_back(static_cast<std::uint32_t>(operations_.size()));
    operations_.emplace_back();
  }
  const std::uint32_t slot = free_operations_.back();
  free_operations_.pop_back();
  Operation& made = operations_[slot];
  made.slot = slot;
  made.released = false;
  made.group = group.name;
  made.context = context;
  made.rank = rank;
  made.window = 0;
  made.reads = false;
  made.listed = false;
  made.stage = Stage::moving;
  made.local = nullptr;
  made.posted = 0;
  made.signal.reset();
  made.owner = config_.nic.owner;
  made.state.store(Request::State::pending, std::memory_order_relaxed);
  return made;
}

void Rma::begin(Group& group, Operation& operation, Request*& out) {
  out = &operation;
  // A member reaches itself without the network, and at once.
  if (operation.rank == group.rank) {
    auto* const there = reinterpret_cast<std::byte*>(operation.address);
    if (operation.size != 0) {
      std::memmove(operation.reads ? operation.local : there,
                   operation.reads ? there : operation.local, operation.size);
    }
    const bool done =
        !operation.signal || add_to_word(group.windows.at(operation.signal->word.window),
                                         operation.signal->word.offset, operation.signal->value);
    end(operation, done ? Outcome::ok : Outcome::invalid_usage);
    return;
  }
  Channel& channel = group.contexts[operation.context].channels[operation.rank];
  channel.operations.push_back(operation.slot);
  operation.listed = true;
  if (!channel.stalled) {
    advance(group, operation.context, operation.rank);
  }
}

// Posts what is not with the engine yet, in order.
void Rma::advance(Group& group, std::uint32_t context, std::uint32_t rank) {
  Channel& channel = group.contexts[context].channels[rank];
  channel.stalled = false;
  while (channel.posted < channel.operations.size()) {
    Operation& next = operations_[channel.operations[channel.posted]];
    if (next.stage == Stage::moving && !post_parts(next, group.members[rank].partner)) {
      ++counters_.stalls;
      channel.stalled = true;
      (void)stalled_.push({group.name, context, rank});
      return;
    }
    ++channel.posted;
    if (next.stage == Stage::moving && next.in_engine == 0) {
      on_moved(group, next);  // it has no bytes, or they are all there
    }
  }
}

bool Rma::post_parts(Operation& operation, const RemoteEnd& partner) {
  while (operation.posted < operation.size) {
    const auto length = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(operation.size - operation.posted, config_.part_bytes));
    const auto fill = [&](auto&& request) {
      request.peer = partner.peer;
      request.source = links_.data();
      request.destination = partner.data();
      request.qkey = partner.qkey;
      request.cookie = Cookie{Lane::remote, 0, operation.slot}.pack();
      request.segments[0] = {operation.local + operation.posted, length};
      request.remote_address = operation.address + operation.posted;
      request.remote_key = operation.key;
      return engine_.post(request);
    };
    const srd::PostResult posted =
        operation.reads ? fill(srd::ReadRequest{}) : fill(srd::WriteRequest{});
    if (posted != srd::PostResult::accepted) {
      return false;
    }
    operation.posted += length;
    ++operation.in_engine;
  }
  return true;
}

// All bytes are where they belong.
void Rma::on_moved(Group& group, Operation& operation) {
  operation.stage = Stage::moved;
  if (!operation.signal) {
    end(operation, Outcome::ok);
  } else if (!operation.signal->strong) {
    send_signal(group, operation);
  } else if (group.contexts[operation.context].channels[operation.rank].operations.front() !=
             operation.slot) {
    ++counters_.signals_held;
  }
  settle_front(group, operation.context, operation.rank);
}

void Rma::send_signal(Group& group, Operation& operation) {
  operation.stage = Stage::signalled;
  ++operation.in_engine;
  RmaMessage message;
  message.kind = static_cast<std::uint8_t>(RmaKind::signal);
  message.number = operation.signal->word.window;
  message.place = operation.signal->word.offset;
  message.amount = operation.signal->value;
  ++counters_.signals;
  send(group, operation.rank, message, operation.slot);
}

// The oldest operation has ended, or may be a strong signal whose turn has come.
void Rma::settle_front(Group& group, std::uint32_t context, std::uint32_t rank) {
  Channel& channel = group.contexts[context].channels[rank];
  while (!channel.operations.empty() && channel.posted != 0) {
    Operation& oldest = operations_[channel.operations.front()];
    if (oldest.stage == Stage::moved) {
      send_signal(group, oldest);
    }
    if (oldest.stage != Stage::ended) {
      return;
    }
    channel.operations.pop_front();
    --channel.posted;
    oldest.listed = false;
    recycle(oldest);
  }
}

// Idempotent, since an operation can end through its member's failure and again when the engine
// gives its parts back.
void Rma::end(Operation& operation, Outcome outcome) {
  if (operation.stage != Stage::ended) {
    operation.stage = Stage::ended;
    operation.Request::end(outcome);
  }
}

void Rma::release(Request& request) {
  auto& operation = static_cast<Operation&>(request);
  if (operation.released) {
    return;  // its group was closed between the caller's look and this
  }
  operation.released = true;
  operation.state.store(Request::State::free, std::memory_order_relaxed);
  recycle(operation);
}

// A slot is free when nobody names it any more: neither the caller, nor the engine, nor a channel.
void Rma::recycle(Operation& operation) {
  if (operation.stage == Stage::ended && operation.released && operation.in_engine == 0 &&
      !operation.listed) {
    operation.group = {};
    free_operations_.push_back(operation.slot);
  }
}

// The caller goes: nobody will ask for these requests.
void Rma::abandon(const Group& group, std::optional<std::uint32_t> context) {
  const auto concerned = [&](const Operation& one) {
    return one.group == group.name && (!context || one.context == *context);
  };
  if (std::ranges::any_of(operations_, [&](const Operation& one) {
        return concerned(one) && one.in_engine != 0;
      })) {
    engine_.revoke([&](std::uint64_t word) {
      const Cookie cookie = Cookie::unpack(word);
      return cookie.lane == Lane::remote && concerned(operations_[cookie.index]);
    });
  }
  for (Operation& one : operations_) {
    if (concerned(one)) {
      end(one, Outcome::invalid_usage);
      one.state.store(Request::State::free, std::memory_order_relaxed);
      one.released = true;
      one.listed = false;
      one.group = {};
      recycle(one);
    }
  }
}

// The reader of the word may run at any time, on any CPU: it sees what came before, too.
bool Rma::add_to_word(const Window& window, std::uint64_t offset, std::uint64_t value) {
  std::byte* const word = window.data + offset;
  return touch_lent(word, sizeof value, [word, value] {
    // Windows need no alignment: a word is aligned within its window only.
    if (reinterpret_cast<std::uintptr_t>(word) % sizeof value == 0) {
      std::atomic_ref(*reinterpret_cast<std::uint64_t*>(word))
          .fetch_add(value, std::memory_order_release);
      return;
    }
    std::uint64_t sum = 0;
    std::memcpy(&sum, word, sizeof sum);
    sum += value;
    std::memcpy(word, &sum, sizeof sum);
  });
}

}  // namespace weft::nccl
