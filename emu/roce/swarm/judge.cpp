// Owns the rules: each request completes once and in order, is executed exactly once, puts its
// bytes where they belong and nowhere else, and fails only for a reason.
//
// Every request paints its bytes with a pattern of its own number. Where a peer's memory shows
// which requests were executed and in which order, and what completions say has to agree with it.
// The first disagreement is the verdict of the run.
#include "emu/roce/swarm/judge.hpp"

#include <algorithm>
#include <cstring>

namespace weft::roce::swarm {
namespace {

bool is_message(Kind kind) { return kind == Kind::send || kind == Kind::write_immediate; }
bool writes(Kind kind) {
  return kind == Kind::write || kind == Kind::write_immediate || kind == Kind::copy;
}
bool is_bad(Kind kind) { return kind >= Kind::bad_key; }

WcStatus refusal_of(Kind kind) {
  switch (kind) {
    case Kind::too_long:
      return WcStatus::remote_invalid_request;
    case Kind::bad_local:
      return WcStatus::local_protection;
    default:
      return WcStatus::remote_access;
  }
}

}  // namespace

// Differs from byte to byte and from request to request, so that misplaced bytes show.
std::byte content(std::uint32_t number, std::size_t at) {
  return static_cast<std::byte>((mix64(number) >> (8 * (at % 8))) + at / 8);
}
void paint(std::byte* to, std::uint32_t number, std::size_t length) {
  for (std::size_t i = 0; i < length; ++i) {
    to[i] = content(number, i);
  }
}
bool is_painted(const std::byte* at, std::uint32_t number, std::size_t length) {
  for (std::size_t i = 0; i < length; ++i) {
    if (at[i] != content(number, i)) {
      return false;
    }
  }
  return true;
}

bool GuardedBuffer::margins_intact() const {
  const auto blank = [](std::byte byte) { return byte == kBlank; };
  return std::all_of(bytes_.begin(), bytes_.begin() + kMargin, blank) &&
         std::all_of(bytes_.end() - kMargin, bytes_.end(), blank);
}

void Judge::condemn(const std::string& text) {
  if (verdict_.empty()) {
    verdict_ = "at " + std::to_string(nanoseconds(world_.now())) + " ns: " + text;
  }
}

std::string Judge::name(const PostedRequest& request) const {
  return "request " + std::to_string(request.number) + " (kind " +
         std::to_string(static_cast<int>(request.kind)) + ", " + std::to_string(request.length) +
         " bytes, connection " + std::to_string(request.connection) + ", end " +
         std::to_string(request.end) + ")";
}

End* Judge::end_of(std::uint32_t host, std::uint32_t qpn) {
  for (Connection& connection : connections) {
    for (End& end : connection.ends) {
      if (end.host == host && end.qpn == qpn) {
        return &end;
      }
    }
  }
  return nullptr;
}

// What comes before an error is heard may still succeed, so this is weaker than a completion in
// error.
void Judge::heard_event(std::uint32_t host, const Event& event) {
  if (event.type == EventType::qp_access_error || event.type == EventType::qp_request_error) {
    if (End* const end = end_of(host, event.id)) {
      end->warned = true;
    }
  }
}

void Judge::completed(std::uint32_t host, const Completion& completion) {
  if (completion.wr_id >= kReceiveId) {
    completed_receive(host, completion);
  } else {
    completed_request(host, completion);
  }
}

void Judge::completed_request(std::uint32_t host, const Completion& completion) {
  if (completion.wr_id == 0 || completion.wr_id > requests.size()) {
    condemn("a completion of a request that nobody made");
    return;
  }
  PostedRequest& request = this->request(completion.wr_id);
  End& end = connections[request.connection].ends[request.end];
  if (request.done || end.host != host || end.qpn != completion.qpn) {
    condemn(name(request) + " completes twice, or elsewhere");
    return;
  }
  if (request.number <= end.last_sent) {
    condemn(name(request) + " completes out of order");
  }
  end.last_sent = request.number;
  request.done = true;
  --end.open;
  if (completion.status == WcStatus::success) {
    request.succeeded = true;
    check_success(request, end);
    return;
  }
  if (!explained(request, completion.status)) {
    condemn(name(request) + " ends with status " +
            std::to_string(static_cast<int>(completion.status)) + " for no reason");
  }
  end.ended = true;
}

// Whether anything in the plan or at the peer can be the reason for this error.
bool Judge::explained(const PostedRequest& request, WcStatus status) {
  const Connection& connection = connections[request.connection];
  const End& own = connection.ends[request.end];
  const End& peer = connection.ends[1 - request.end];
  if (status == WcStatus::flushed) {
    return own.ended || own.warned;
  }
  if (own.ended) {
    return false;  // nothing but flushes after the first error
  }
  if (status == WcStatus::retries_exceeded) {
    return !world_.is_up(peer.host) || peer.ended || peer.warned ||
           ran_out_of_retries(connection, request.end);
  }
  if (status == WcStatus::rnr_retries_exceeded) {
    return ran_out_of_patience(connection, peer);
  }
  return is_bad(request.kind) && status == refusal_of(request.kind);
}

// Each try takes at least one lost frame of the two, in either direction. Where frames overtake
// each other they are asked for again without any loss, so there no number tells.
bool Judge::ran_out_of_retries(const Connection& connection, std::uint32_t end) const {
  const End& own = connection.ends[end];
  const End& peer = connection.ends[1 - end];
  const std::uint64_t lost = world_.lost_between(own.host, peer.host, peer.qpn) +
                             world_.lost_between(peer.host, own.host, own.qpn);
  return plan_.faults.jitter > Duration{} || lost > connection.plan.retry_count;
}

// A host may refuse requests of other connections for the same reason, so the count is generous.
bool Judge::ran_out_of_patience(const Connection& connection, const End& peer) const {
  constexpr std::uint8_t kForEver = 7;
  const std::uint8_t retries = connection.plan.rnr_retry;
  return retries != kForEver &&
         (!world_.is_up(peer.host) || world_.engine(peer.host).counters().send_rnr_err > retries);
}

// Success means that the peer has executed the request: its memory must show it now, not only
// later.
void Judge::check_success(PostedRequest& request, End& end) {
  const Connection& connection = connections[request.connection];
  if (end.ended) {
    condemn(name(request) + " succeeds on a queue pair in error");
  }
  const bool reliable = connection.plan.type == QpType::rc;
  if (is_bad(request.kind) && reliable) {
    condemn(name(request) + " should have been refused");
    return;
  }
  const std::size_t at = std::size_t{request.slot} * kSlot;
  if (request.kind == Kind::read || request.kind == Kind::read_back) {
    if (!is_painted(end.local.at(at), request.pattern, request.length)) {
      condemn(name(request) + " has read something else");
    }
  } else if (request.kind == Kind::add) {
    std::uint64_t original = 0;
    std::memcpy(&original, end.local.at(at), sizeof original);
    if (!end.originals.insert(original).second || original >= end.adds) {
      condemn(name(request) + " has found a value of another");
    }
  } else if (writes(request.kind) && reliable &&
             !is_painted(end.target.at(at), request.pattern, request.length)) {
    condemn(name(request) + " has not arrived");
  }
}

void Judge::completed_receive(std::uint32_t host, const Completion& completion) {
  const std::uint64_t number = completion.wr_id - kReceiveId;
  if (number >= receives.size() || receives[number].done || receives[number].host != host) {
    condemn("a receive completes twice, or nobody posted it");
    return;
  }
  PostedReceive& receive = receives[number];
  receive.done = true;
  End* const end = end_of(host, completion.qpn);
  if (end == nullptr || (receive.qpn != 0 && receive.qpn != completion.qpn)) {
    condemn("a receive completes on another queue pair");
    return;
  }
  if (receive.qpn != 0) {
    --end->receives;
    if (completion.wr_id <= end->last_receive) {
      condemn("receives complete out of order");
    }
    end->last_receive = completion.wr_id;
  }
  if (completion.status == WcStatus::success) {
    check_message(completion, *end, receive);
    return;
  }
  const bool too_long = completion.status == WcStatus::local_length && plan_.bad_requests > 0;
  if (!too_long && !(completion.status == WcStatus::flushed && (end->ended || end->warned))) {
    condemn("a receive ends with status " + std::to_string(static_cast<int>(completion.status)));
  }
  end->ended = true;
}

void Judge::check_message(const Completion& completion, End& end, const PostedReceive& receive) {
  const bool datagram = (completion.flags & kWcGrh) != 0;
  const std::size_t offset = datagram ? kGrhSize : 0;
  std::byte* const bytes =
      receive_memory[receive.host].at(std::size_t{receive.slot} * kReceiveSize);
  if (completion.immediate == 0 || completion.immediate > requests.size()) {
    condemn("a message that nobody sent");
    return;
  }
  PostedRequest& request = this->request(completion.immediate);
  Connection& connection = connections[request.connection];
  End& sender = connection.ends[request.end];
  if (&connection.ends[1 - request.end] != &end || !is_message(request.kind) ||
      completion.source_qpn != sender.qpn) {
    condemn(name(request) + " is heard by another");
    return;
  }
  ++request.deliveries;
  // UC takes the beginning of a message with any PSN, and uses a receive again whose message broke
  // off.
  const bool reliable = connection.plan.type == QpType::rc;
  const bool ordered = reliable || (plan_.faults.repeat == 0 && plan_.faults.jitter == Duration{});
  if (ordered && (request.number <= end.last_heard || request.deliveries != 1)) {
    condemn(name(request) + " is heard twice, or too late");
  }
  end.last_heard = request.number;
  const bool is_send = request.kind == Kind::send;
  if (completion.length != request.length + offset ||
      (completion.opcode == WcOpcode::receive) != is_send) {
    condemn(name(request) + " is heard with another length or kind");
  }
  const std::size_t used = is_send ? request.length + offset : 0;
  if (is_send && !is_painted(bytes + offset, request.pattern, request.length)) {
    condemn(name(request) + " is heard with other bytes");
  }
  if ((reliable || datagram) && !std::all_of(bytes + used, bytes + kReceiveSize,
                                             [](std::byte byte) { return byte == kBlank; })) {
    condemn(name(request) + " has written behind its end");
  }
  if (datagram && std::memcmp(bytes + 32, &address_of_host(sender.host).bytes[12], 4) != 0) {
    condemn(name(request) + " shows another sender's header");
  }
  if (!is_send && connection.plan.type == QpType::rc &&
      !is_painted(sender.target.at(std::size_t{request.slot} * kSlot), request.pattern,
                  request.length)) {
    condemn(name(request) + " is announced before it is there");
  }
}

void Judge::check_at_the_end() {
  for (const PostedRequest& request : requests) {
    Connection& connection = connections[request.connection];
    const End& end = connection.ends[request.end];
    const End& peer = connection.ends[1 - request.end];
    if (!request.done && world_.is_up(end.host)) {
      condemn(name(request) + " never completes");
    }
    if (request.succeeded && is_message(request.kind) && connection.plan.type == QpType::rc &&
        world_.is_up(peer.host) && request.deliveries != 1) {
      condemn(name(request) + " succeeded and was not heard");
    }
  }
  check_unheard();
  check_receives();
  for (Connection& connection : connections) {
    for (std::uint32_t end = 0; end < connection.ends.size(); ++end) {
      check_slots(connection, end);
    }
  }
  for (const GuardedBuffer& memory : receive_memory) {
    if (!memory.margins_intact()) {
      condemn("bytes outside of the receives were written");
    }
  }
}

// UD and UC may lose messages, but not for nothing: each one that was sent and not heard is a frame
// that the network lost, or one that found no receive. Jitter and repetitions bring UC messages out
// of order, which costs more of them: there UC is not judged.
void Judge::check_unheard() {
  if (plan_.deaths > 0 || plan_.breaks > 0) {
    return;
  }
  const bool in_order = plan_.faults.jitter == Duration{} && plan_.faults.repeat == 0;
  std::uint64_t unheard = 0;
  for (const PostedRequest& request : requests) {
    const QpType type = connections[request.connection].plan.type;
    const bool told = type == QpType::ud || (type == QpType::uc && in_order);
    unheard += told && request.succeeded && is_message(request.kind) && request.deliveries == 0;
  }
  std::uint64_t reasons = world_.lost_unreliable();
  for (std::uint32_t host = 0; host < world_.hosts(); ++host) {
    reasons += world_.engine(host).counters().dropped_for_receive;
  }
  if (unheard > reasons) {
    condemn(std::to_string(unheard) + " messages of UD and UC were not heard, for " +
            std::to_string(reasons) + " lost frames and missing receives");
  }
}

// An application waits for all that it has posted to a queue pair, in error as well.
void Judge::check_receives() {
  for (const PostedReceive& receive : receives) {
    if (receive.done || receive.qpn == 0 || !world_.is_up(receive.host)) {
      continue;
    }
    const auto attributes = world_.engine(receive.host).query_qp(receive.qpn);
    if (attributes && attributes->state == QpState::error) {
      condemn("a receive of queue pair " + std::to_string(receive.qpn) +
              " in error never completes");
    }
  }
}

// Each slot holds what was there, or what its request put there.
void Judge::check_slots(Connection& connection, std::uint32_t index) {
  End& end = connection.ends[index];
  const auto blank = [](std::byte byte) { return byte == kBlank; };
  if (!end.target.margins_intact() || !end.local.margins_intact() ||
      !end.read_only.margins_intact() ||
      !std::all_of(end.read_only.at(0), end.read_only.at(kSlot), blank)) {
    condemn("bytes outside of a region were written");
  }
  std::uint64_t counter = 0;
  std::memcpy(&counter, end.target.at(0), sizeof counter);
  if (counter > end.adds || counter < end.originals.size() ||
      (!end.ended && !end.warned && world_.is_up(end.host) && counter != end.originals.size())) {
    condemn("a counter was increased to " + std::to_string(counter) + " by " +
            std::to_string(end.originals.size()) + " of " + std::to_string(end.adds) + " adds");
  }
  for (const PostedRequest& request : requests) {
    if (&connections[request.connection] != &connection || request.end != index ||
        is_bad(request.kind)) {
      continue;
    }
    const std::byte* const slot = end.target.at(std::size_t{request.slot} * kSlot);
    const bool read = request.kind == Kind::read || request.kind == Kind::read_back;
    for (std::size_t i = 0; i < kSlot && (read || writes(request.kind)); ++i) {
      const bool painted = i < request.length && slot[i] == content(request.pattern, i);
      if (!painted && (slot[i] != kBlank || (read && i < request.length))) {
        condemn(name(request) + " has left other bytes at " + std::to_string(i));
        break;
      }
    }
  }
}

}  // namespace weft::roce::swarm
