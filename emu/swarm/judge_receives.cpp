// Owns the rules for receives: what is delivered, to which life of a process, and how often.
#include <algorithm>
#include <cstring>

#include "emu/swarm/judge.hpp"
#include "emu/swarm/world_names.hpp"

namespace weft::swarm {

using Kind = srd::Completion::Kind;
using srd::Status;

// The same for a receive: it must be open and of that endpoint, hold the whole message and nothing
// behind it, or be untouched.
void Judge::completed_receive(TimePoint now, std::uint32_t host, const srd::Completion& completion,
                              std::uint32_t from) {
  const HostPlan& plan = plan_.hosts[host];
  const auto endpoint =
      std::find_if(plan.endpoints.begin(), plan.endpoints.end(),
                   [&](const EndpointPlan& e) { return e.qpn == completion.endpoint; });
  if (endpoint == plan.endpoints.end()) {
    return condemn("a message for an endpoint that never was");
  }
  if (completion.kind == Kind::receive_write_imm &&
      completion.consumed_receive == endpoint->unsolicited_immediate &&
      completion.status == Status::ok) {
    return condemn("a write with immediate data takes a receive where it must not, or reversed");
  }
  if (completion.kind == Kind::receive && !completion.consumed_receive) {
    return condemn("a message without a receive");
  }
  if (!completion.consumed_receive && completion.status != Status::ok) {
    return condemn(std::string{"immediate data completes with "} +
                   srd::to_string(completion.status));
  }
  if (!completion.consumed_receive) {
    return check_write_immediate(now, host, completion, from);
  }
  const std::uint64_t index = completion.cookie - kReceiveCookie - 1;
  if (completion.cookie <= kReceiveCookie || index >= receives_.size()) {
    return condemn("a completion for a receive that was never posted");
  }
  PostedReceive& receive = receives_[index];
  if (receive.state != PostedReceive::State::open || receive.host != host ||
      plan.endpoints[receive.endpoint].qpn != completion.endpoint) {
    return condemn("receive " + std::to_string(index) + " completes twice or elsewhere");
  }
  receive.state = PostedReceive::State::done;
  if (!receive.buffer.margins_intact()) {
    return condemn("bytes around receive " + std::to_string(index) + " have changed");
  }
  if (completion.status == Status::ok && completion.kind == Kind::receive) {
    if (completion.length > receive.buffer.bytes().size()) {
      return condemn("a message is longer than its receive");
    }
    if (!is_all(receive.buffer.bytes().subspan(completion.length), kBlank)) {
      return condemn("bytes behind the message in receive " + std::to_string(index) +
                     " have changed");
    }
    check_message(now, host, completion, from, receive.buffer.bytes().first(completion.length));
  } else if (!is_all(receive.buffer.bytes(), kBlank)) {
    return condemn("receive " + std::to_string(index) + " was written without a message");
  } else if (completion.status == Status::ok) {
    check_write_immediate(now, host, completion, from);
  } else if (completion.status != Status::flushed ||
             !history_.was_closed(host, receive.endpoint, receive.posted)) {
    return condemn("receive " + std::to_string(index) + " completes with " +
                   srd::to_string(completion.status) + ", which nothing explains");
  }
  // As with requests: half of the buffers are freed, half are scribbled over.
  if ((index & 1) != 0) {
    receive.buffer.free();
  } else {
    receive.buffer.scribble();
  }
}

// A message replayed from another address is, as far as the transport can know, that sender's own.
void Judge::heard_of_stranger() {
  if (!strangers_) {
    condemn("a message of nobody's has arrived");
  }
}

// Finds the request by the number in the payload, or by the immediate data if the payload is too
// short, and compares all that the completion says with it.
void Judge::check_message(TimePoint now, std::uint32_t host, const srd::Completion& completion,
                          std::uint32_t from, std::span<const std::byte> bytes) {
  if (from == VirtualNetwork::kNobody) {
    return heard_of_stranger();
  }
  const auto length = static_cast<std::uint32_t>(bytes.size());
  if (length < kNumbered && !completion.has_immediate) {
    const Anonymous key{from, completion.remote.value(), host, completion.endpoint.value(), length};
    // At most once per message and life of the receiver; the messages cannot be told apart.
    const auto lives = static_cast<std::uint32_t>(processes_[host].size());
    if (++anonymous_delivered_[key] > anonymous_posted_[key] * lives) {
      condemn("more short messages have arrived than were sent");
    }
    return;
  }
  std::uint64_t number = completion.immediate;
  if (length >= kNumbered) {
    std::memcpy(&number, bytes.data(), sizeof number);
  }
  PostedRequest* request = request_of(number);
  if (request == nullptr || request->kind != Kind::send || request->step.peer != host ||
      request->step.host != from || request->step.length != length) {
    return condemn("host " + std::to_string(host) + " received a message that nobody sent to it");
  }
  const Step& step = request->step;
  if (plan_.hosts[from].endpoints[step.endpoint].qpn != completion.remote ||
      plan_.hosts[host].endpoints[step.peer_endpoint].qpn != completion.endpoint ||
      step.flaw != Flaw::none) {
    return condemn(name(*request) + " was delivered to the wrong endpoint");
  }
  if (completion.has_immediate != step.immediate ||
      (step.immediate && completion.immediate != static_cast<std::uint32_t>(number))) {
    return condemn(name(*request) + " was delivered with wrong immediate data");
  }
  if (length >= kNumbered && !is_painted(bytes.subspan(kNumbered), request->key, kNumbered)) {
    return condemn(name(*request) + " was delivered with wrong bytes");
  }
  delivered(now, *request, host);
}

// Immediate data of a write may be seen only when all bytes of the write are in place. Not checked
// for a second life of the receiver: the region it names is the former life's.
void Judge::check_write_immediate(TimePoint now, std::uint32_t host,
                                  const srd::Completion& completion, std::uint32_t from) {
  if (from == VirtualNetwork::kNobody) {
    return heard_of_stranger();
  }
  PostedRequest* request = request_of(completion.immediate);
  if (request == nullptr || request->kind != Kind::write || !request->step.immediate ||
      request->step.peer != host || request->step.host != from || !completion.has_immediate) {
    return condemn("immediate data that nobody sent");
  }
  const Step& step = request->step;
  if (plan_.hosts[from].endpoints[step.endpoint].qpn != completion.remote ||
      plan_.hosts[host].endpoints[step.peer_endpoint].qpn != completion.endpoint ||
      step.flaw != Flaw::none || completion.length != step.length) {
    return condemn(name(*request) + ": its immediate data came with wrong particulars");
  }
  const bool first = request->delivered_to.empty();
  if (request->has_place && first &&
      !is_painted(request->target->memory.bytes().subspan(request->offset, step.length),
                  request->key)) {
    return condemn(name(*request) + ": its immediate data came before all of its bytes");
  }
  delivered(now, *request, host);
}

// At most once per life of the receiver; and nothing of a former life of the sender once the
// receiver knows the next one.
void Judge::delivered(TimePoint now, PostedRequest& request, std::uint32_t host) {
  const std::uint32_t here = process(host).incarnation();
  const std::uint32_t from = request.step.host;
  if (std::find(request.delivered_to.begin(), request.delivered_to.end(), here) !=
      request.delivered_to.end()) {
    return condemn(name(request) + " was delivered twice");
  }
  // Two lives may only both receive it if the sender did not know the first one.
  const auto* knew = history_.heard(from, request.incarnation, host);
  if (!request.delivered_to.empty() && knew != nullptr && knew->earliest < here &&
      !history_.had_first_contact(from, request.incarnation, host, here)) {
    return condemn(name(request) + " was delivered to two lives of host " + std::to_string(host));
  }
  const auto* heard = history_.heard(host, here, from);
  const HostPlan& plan = plan_.hosts[host];
  if (heard != nullptr && heard->incarnation > request.incarnation && heard->since < now &&
      !is_lazy(host) && plan.engine.forced_reorder == 0) {
    return condemn(name(request) + " came from a former life of host " + std::to_string(from));
  }
  request.delivered_to.push_back(here);
  take_back_place(request);
}

}  // namespace weft::swarm
