// Owns what the engine tells: messages that arrived, and work that ended.
//
// progress() takes all completions of the engine. A control message (hello, welcome, announce,
// reject, goodbye) goes to the connection that it names; the immediate of a write says which
// announced buffer was filled; the cookie of work of ours says which request has ended. Any message
// may be malformed, late, or for a connection that is gone: then it is counted, and answered where
// the other end would wait for ever.
#include <algorithm>

#include "integration/nccl/core/core.hpp"

namespace weft::nccl {

using srd::Completion;
using srd::Status;

void Core::progress(TimePoint now) {
  while (const Completion* const next = engine_.next_completion()) {
    // A copy: what is done with it may post work, and so move the queue.
    const Completion completion = *next;
    engine_.pop_completion();
    take(completion);
  }
  follow_up(now);
}

void Core::follow_up(TimePoint now) {
  if (engine_.counters().peer_restarts != seen_restarts_) {
    notice_restarts();
  }
  // Before data: a partner that waits for a hello's answer or an announcement can do nothing else.
  links_.retry();
  // Each stalled end gets one try per round, the one that has waited longest first. The first that
  // still finds no room ends the round; advance() has queued it again.
  for (std::size_t left = links_.stalled().size(); left > 0; --left) {
    SendComm* const one = senders_.find(links_.stalled().front());
    links_.stalled().pop();
    if (one != nullptr && !one->advance(links_)) {
      break;
    }
  }
  if (next_check_ == kNever || now >= next_check_) {
    next_check_ = now + kCheckEvery;
    check();
  }
}

void Core::take(const Completion& completion) {
  if (completion.kind == Completion::Kind::receive_write_imm) {
    on_immediate(completion);
    return;
  }
  const Cookie cookie = Cookie::unpack(completion.cookie);
  switch (cookie.lane) {
    case Lane::control_receive:
      if (completion.status == Status::ok) {
        on_control(completion, links_.received(cookie.index, completion.length));
      }
      // A flushed receive belongs to an endpoint that is being closed.
      if (completion.status != Status::flushed) {
        links_.post_receive(cookie.index);
      }
      break;
    case Lane::control_send:
      if (const auto partner = links_.on_sent(cookie.index);
          partner && completion.status != Status::ok) {
        on_failure(*partner, completion.status);
      }
      break;
    case Lane::eager:
      on_eager_sent(cookie, completion.status);
      break;
    case Lane::write:
      on_written(cookie, completion.status);
      break;
    case Lane::watch:
      watches_[cookie.index].under_way = false;
      if (completion.status != Status::flushed) {
        on_failure(watches_[cookie.index].partner, completion.status);
      }
      break;
    case Lane::remote:
      break;  // of groups only
  }
}

void Core::on_control(const Completion& completion, std::span<const std::byte> message) {
  const auto header = parse_control(message);
  if (!header) {
    ++links_.counters().malformed_controls;
    return;
  }
  switch (static_cast<ControlKind>(header->kind)) {
    case ControlKind::hello:
      on_hello(completion, *header);
      break;
    case ControlKind::welcome:
    case ControlKind::refuse:
      on_welcome(completion, *header);
      break;
    case ControlKind::announce:
      on_announce(completion, *header, message);
      break;
    case ControlKind::reject:
      on_reject(completion, *header);
      break;
    case ControlKind::goodbye:
      on_goodbye(completion, *header);
      break;
    case ControlKind::eager:
      on_eager(completion, *header, message);
      break;
  }
}

// Number and nonce must both be right, and the peer must be the connection's: a number is used
// again after a while, and anybody can send a message.
SendComm* Core::sender(const Completion& completion, const ControlHeader& header) {
  SendComm* const found = senders_.find(header.to_number.value());
  return found != nullptr && found->is(header.to_nonce.value(), completion.peer) ? found : nullptr;
}

ReceiveComm* Core::receiver(const Completion& completion, const ControlHeader& header) {
  ReceiveComm* const found = receivers_.find(header.to_number.value());
  return found != nullptr && found->is(header.to_nonce.value(), completion.peer) ? found : nullptr;
}

// A partner that asked a former life of ours asks again (SendComm::ask_again()), even if the first
// hello had not left by then: so it may come twice.
bool Core::knows(const Listener& listener, const Hello& hello) const {
  for (std::size_t i = 0; i < listener.waiting.size(); ++i) {
    if (listener.waiting.at(i) == hello) {
      return true;
    }
  }
  return std::any_of(receivers_.ends.begin(), receivers_.ends.end(), [&](const auto& one) {
    return one != nullptr && Hello{one->partner, one->partner_number, one->partner_nonce} == hello;
  });
}

// A hello is answered by accept() only, when NCCL has taken the connection. A refusal tells a
// sender whose listener is closed, or was never there.
void Core::on_hello(const Completion& completion, const ControlHeader& header) {
  const Hello hello{{completion.peer, completion.remote, header.qkey.value()},
                    header.from_number.value(),
                    header.from_nonce.value()};
  const auto found = listeners_.find(header.sequence.value());
  if (found != listeners_.end() && found->second.secret == header.secret.value() &&
      (knows(found->second, hello) || found->second.waiting.push(hello))) {
    return;
  }
  ++links_.counters().stray_controls;
  ControlHeader refuse;
  refuse.kind = static_cast<std::uint8_t>(ControlKind::refuse);
  refuse.to_number = hello.number;
  refuse.to_nonce = hello.nonce;
  links_.send(hello.partner, refuse, false);
}

void Core::on_welcome(const Completion& completion, const ControlHeader& header) {
  SendComm* const asked = sender(completion, header);
  const bool refused = static_cast<ControlKind>(header.kind) == ControlKind::refuse;
  if (asked == nullptr && !refused) {
    return dismiss(completion, header);
  }
  if (asked == nullptr || asked->state != Comm::State::connecting) {
    ++links_.counters().stray_controls;
    return;
  }
  if (refused) {
    asked->fail(Outcome::remote_error);
    return;
  }
  asked->partner_number = header.from_number.value();
  asked->partner_nonce = header.from_nonce.value();
  asked->state = Comm::State::open;
}

// Tells an end whose partner is no more, or it would wait for ever.
void Core::dismiss(const Completion& completion, const ControlHeader& header, std::uint8_t flags) {
  ++links_.counters().stray_controls;
  ControlHeader goodbye;
  goodbye.kind = static_cast<std::uint8_t>(ControlKind::goodbye);
  goodbye.flags = flags;
  goodbye.to_number = header.from_number.value();
  goodbye.to_nonce = header.from_nonce.value();
  links_.send({completion.peer, completion.remote, header.qkey.value()}, goodbye, false);
}

void Core::on_announce(const Completion& completion, const ControlHeader& header,
                       std::span<const std::byte> message) {
  SendComm* const meant = sender(completion, header);
  if (meant == nullptr) {
    // A closed end says goodbye itself, once what it sent has arrived.
    const SendComm* const named = senders_.find(header.to_number.value());
    if (named != nullptr && named->goodbye_due && named->nonce == header.to_nonce.value()) {
      return;
    }
    return dismiss(completion, header);
  }
  if (!meant->on_announce(links_, header, message)) {
    ++links_.counters().stray_controls;
  }
}

// The sender had a message that does not fit what was announced. Both ends fail: the same mismatch
// would come again with every try.
void Core::on_reject(const Completion& completion, const ControlHeader& header) {
  if (ReceiveComm* const meant = receiver(completion, header)) {
    meant->fail(Outcome::invalid_usage);
  } else {
    ++links_.counters().stray_controls;
  }
}

void Core::on_goodbye(const Completion& completion, const ControlHeader& header) {
  if ((header.flags & kToSender) != 0) {
    if (SendComm* const meant = sender(completion, header)) {
      meant->desert();
      return;
    }
  } else if (ReceiveComm* const meant = receiver(completion, header)) {
    meant->desert();
    return;
  }
  ++links_.counters().stray_controls;
}

void Core::on_eager(const Completion& completion, const ControlHeader& header,
                    std::span<const std::byte> message) {
  ReceiveComm* const meant = receiver(completion, header);
  if (meant == nullptr) {
    return dismiss(completion, header, kToSender);
  }
  if (!meant->on_eager(links_, {header.sequence.value(), tag_of(message),
                                message.subspan(sizeof(EagerHeader))})) {
    ++links_.counters().stray_controls;
  }
}

// Neither nonce nor Q_Key travels in an immediate. The peer and the slot's use must be right; the
// write itself had to have the key of the buffer.
void Core::on_immediate(const Completion& completion) {
  const Immediate immediate = Immediate::unpack(completion.immediate);
  ReceiveComm* const meant = receivers_.find(immediate.comm);
  if (completion.status != Status::ok || meant == nullptr ||
      meant->partner.peer != completion.peer ||
      !meant->on_arrival(links_, immediate, completion.length)) {
    ++links_.counters().stray_immediates;
  }
}

// The engine has given the work back, whatever its outcome; the cookie names the end by number, and
// the number cannot have a new owner as long as work is outstanding (Comm::in_engine).
void Core::on_written(Cookie cookie, Status status) {
  SendComm* const meant = senders_.find(cookie.number);
  if (meant == nullptr) {
    return;
  }
  meant->on_written(links_, cookie.index, status);
  finish_closing(*meant);
}

void Core::on_eager_sent(Cookie cookie, Status status) {
  const auto partner = links_.on_eager_sent(cookie.index & 0xFFFF);
  if (SendComm* const meant = senders_.find(cookie.number)) {
    meant->on_eager_sent(cookie.index >> 16);
    finish_closing(*meant);
  }
  if (partner && status != Status::ok) {
    on_failure(*partner, status);
  }
}

// A closed end says goodbye when the partner has all that was sent eagerly, and its number may rest
// when the engine holds no work of it.
void Core::finish_closing(SendComm& connection) {
  if (connection.goodbye_due && !connection.has_eager_under_way()) {
    connection.goodbye_due = false;
    --goodbyes_due_;
    say_goodbye(connection, 0);
  }
  if (connection.state == Comm::State::closed && connection.in_engine == 0) {
    senders_.remove(connection.number);
  }
}

}  // namespace weft::nccl
