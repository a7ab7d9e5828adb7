// Owns the rules: what a completion must match, and what memory must look like.
//
// A status is accepted if something explains it: the request's own flaw, or an event in the History
// between its posting and its end. For a result of `ok` the memory must agree, byte by byte. After
// the end all memory of all processes is checked once more: no byte may have changed that no
// request accounts for.
#include "emu/swarm/judge.hpp"

#include <algorithm>
#include <cstring>

#include "emu/swarm/world_names.hpp"
#include "srd/engine/mutation.hpp"

namespace weft::swarm {

using Kind = srd::Completion::Kind;
using srd::Status;

namespace {

// The attempts to reach a peer that may be lost one after the other by chance.
constexpr int kMaxTriesLost = 4;

// Whether single packets may get lost by chance: by a fault of the plan, or because a queue is
// full.
bool loses_packets(const Plan& plan) {
  return !plan.link.rate.is_zero() || std::ranges::any_of(plan.steps, [](const Step& step) {
    return step.act == Act::set_loss || step.act == Act::set_burst ||
           step.act == Act::set_corrupt || step.act == Act::kill_path;
  });
}

bool is_anonymous(const PostedRequest& request) {
  return request.kind == Kind::send && request.step.length < kNumbered && !request.step.immediate;
}

}  // namespace

Judge::Judge(const Plan& plan, const History& history,
             const std::vector<std::deque<Process>>& processes)
    : plan_(plan),
      history_(history),
      processes_(processes),
      strangers_(has_foreign_replays(plan)),
      loses_packets_(loses_packets(plan)),
      open_of_(plan.hosts.size(), 0) {}

void Judge::condemn(std::string text) {
  if (verdict_.empty()) {
    verdict_ = std::move(text);
  }
}

// Looks the number up, which a PostedRequest does not know; only a broken rule pays for it.
std::string Judge::name(const PostedRequest& request) const {
  std::uint64_t number = 0;
  for (const PostedRequest& r : requests_) {
    ++number;
    if (&r == &request) {
      break;
    }
  }
  return "request " + std::to_string(number) + " (" + to_string(request.step) + ")";
}

void Judge::accepted(const PostedRequest& request) {
  ++open_;
  ++open_of_[request.step.host];
  if (is_anonymous(request)) {
    const Step& s = request.step;
    ++anonymous_posted_[{s.host, plan_.hosts[s.host].endpoints[s.endpoint].qpn.value(), s.peer,
                         plan_.hosts[s.peer].endpoints[s.peer_endpoint].qpn.value(), s.length}];
  }
}

// The process of `host` has ended. Its open requests and receives never complete, and their memory
// is freed as a process's memory is when it ends: an engine that still touched it would be caught
// by the address sanitizer.
void Judge::orphan(std::uint32_t host) {
  for (PostedRequest& request : requests_) {
    if (request.step.host == host && request.state == PostedRequest::State::open) {
      request.state = PostedRequest::State::orphaned;
      request.buffer.free();
      --open_;
      --open_of_[host];
    }
  }
  for (PostedReceive& receive : receives_) {
    if (receive.host == host && receive.state == PostedReceive::State::open) {
      receive.state = PostedReceive::State::orphaned;
      receive.buffer.free();
    }
  }
}

// Open requests of either host to the other.
std::uint32_t Judge::open_requests_between(std::uint32_t a, std::uint32_t b) const {
  return static_cast<std::uint32_t>(std::ranges::count_if(requests_, [&](const PostedRequest& r) {
    return r.state == PostedRequest::State::open &&
           ((r.step.host == a && r.step.peer == b) || (r.step.host == b && r.step.peer == a));
  }));
}

PostedRequest* Judge::request_of(std::uint64_t number) {
  return number >= 1 && number <= requests_.size() ? &requests_[number - 1] : nullptr;
}

void Judge::completed(TimePoint now, std::uint32_t host, const srd::Completion& completion,
                      std::uint32_t from) {
  if (completion.kind == Kind::receive || completion.kind == Kind::receive_write_imm) {
    completed_receive(now, host, completion, from);
  } else {
    completed_request(now, host, completion);
  }
}

// --- Requests

// The request must exist, be open, and be of that host, kind and endpoint; its status must have an
// explanation, and memory must agree with it.
void Judge::completed_request(TimePoint now, std::uint32_t host,
                              const srd::Completion& completion) {
  PostedRequest* request = request_of(completion.cookie);
  if (request == nullptr || request->step.host != host) {
    return condemn("host " + std::to_string(host) +
                   " has a completion for a request it never made");
  }
  if (request->state != PostedRequest::State::open) {
    return condemn(name(*request) + " completes a second time");
  }
  const Step& step = request->step;
  request->state = PostedRequest::State::done;
  request->status = completion.status;
  --open_;
  --open_of_[host];
  if (completion.kind != request->kind ||
      completion.endpoint != plan_.hosts[host].endpoints[step.endpoint].qpn) {
    return condemn(name(*request) + " completes as something else");
  }
  if (completion.status == Status::receiver_not_ready && may_lack_receive(*request) &&
      is_lazy(step.peer)) {
    doubted_.push_back(completion.cookie);
  } else if (!explained(now, *request, completion.status)) {
    return condemn(name(*request) + " completes with " + srd::to_string(completion.status) +
                   ", which nothing explains");
  }
  check_effect(*request, completion.cookie, host);
  take_back_place(*request);
  if (request->buffer.exists()) {
    if ((completion.cookie & 1) != 0) {
      request->buffer.free();  // so that the address sanitizer reports any later use
    } else {                   // any later write is found at the end, without a sanitizer as well
      request->buffer.scribble();
    }
  }
}

// The one status that each flaw must end with. With no flaw that is `ok`; with a flaw `ok` is
// itself a broken rule.
bool Judge::flaw_explains(const PostedRequest& request, Status status) const {
  switch (request.step.flaw) {
    case Flaw::none:
      return status == Status::ok;
    case Flaw::bad_qpn:
      return status == Status::bad_qpn;
    case Flaw::bad_qkey:
      return status == Status::bad_qkey;
    case Flaw::bad_key:
    case Flaw::stale_key:
    case Flaw::wrong_domain:
      return status == Status::bad_key;
    case Flaw::no_access:
      return status == Status::access_denied;
    case Flaw::out_of_bounds:
    case Flaw::straddling:
      return status == Status::out_of_bounds;
  }
  return false;
}

// Why a request may have ended so. Nothing but `ok` explains itself; for each other status there
// must have been something that leads to it, between the posting and the end of the request.
bool Judge::explained(TimePoint now, const PostedRequest& request, Status status) const {
  const Step& step = request.step;
  if (flaw_explains(request, status) || srd::mutated(srd::Mutation::explain_everything)) {
    return true;
  }
  const EndpointPlan& target = plan_.hosts[step.peer].endpoints[step.peer_endpoint];
  switch (status) {
    case Status::bad_qpn:
      return history_.was_unavailable(step.peer, step.peer_endpoint, request.posted);
    case Status::receiver_not_ready:
      return may_lack_receive(request) &&
             history_.was_without_receives(step.peer, step.peer_endpoint, request.posted);
    case Status::length_error:
      return request.kind == Kind::send && step.length > target.receive_size;
    case Status::bad_key:
      return request.target != nullptr && (!request.target->registered || met_later_life(request));
    case Status::flushed:
      return history_.was_flushed(step.host, step.endpoint, step.peer, request.posted);
    case Status::peer_restarted:
      return restart_explains(request);
    case Status::unresponsive:
    case Status::unreachable:
      return silence_explains(now, request, status);
    default:
      return false;
  }
}

// Whether a lack of receives can end the request.
bool Judge::may_lack_receive(const PostedRequest& request) const {
  const Step& step = request.step;
  const EndpointPlan& target = plan_.hosts[step.peer].endpoints[step.peer_endpoint];
  const bool needs_receive =
      request.kind == Kind::send ||
      (request.kind == Kind::write && step.immediate && !target.unsolicited_immediate);
  return needs_receive && step.rnr_retry != srd::kRnrRetryForever;
}

// A lazy host learns only now how many receives had been used. If one was left each time that it
// polled, from the posting of a request to its end, there was one all the time.
void Judge::polled(std::uint32_t host) {
  std::erase_if(doubted_, [&](std::uint64_t number) {
    const PostedRequest& request = requests_[number - 1];
    const Step& step = request.step;
    if (step.peer != host) {
      return false;
    }
    if (!history_.was_without_receives(host, step.peer_endpoint, request.posted)) {
      condemn(name(request) + " completes with receiver_not_ready, and there were receives");
    }
    return true;
  });
}

// Whether the peer had a later life than the one that the poster's engine knew when the request was
// posted. If it knew none, a late packet of a former life may have introduced that one.
bool Judge::restart_explains(const PostedRequest& request) const {
  const std::size_t lives = processes_[request.step.peer].size();
  return lives > 1 + request.known_incarnation.value_or(0);
}

// Whether the request may have reached a later life than the one that its key belongs to: only a
// sender that knew no life of the peer may address another one.
bool Judge::met_later_life(const PostedRequest& request) const {
  return !request.known_incarnation &&
         processes_[request.step.peer].size() > 1 + request.target_incarnation;
}

// A long silence ends all requests that are under way, even one that was posted near its end. Two
// things must be true of it: the host has waited so long, and the network is the reason.
bool Judge::silence_explains(TimePoint now, const PostedRequest& request, Status status) const {
  const Step& step = request.step;
  const srd::EngineConfig& engine = plan_.hosts[step.host].engine;
  // Time-outs that take peer_timeout together end the peer. The first of them may be of a packet
  // that left before the latest acknowledgement, by up to max_rto; and the first departure after
  // that acknowledgement, from which a wait is counted here, may be the answer to that time-out.
  if (!history_.waited(now, step.host, step.peer, request.posted,
                       engine.peer_timeout - 2 * engine.max_rto)) {
    return false;
  }
  // A host without an answer tries again after max_rto, whether it sends or probes. Where single
  // packets get lost, so may some of these attempts. As long as between two tries it may have
  // waited before the two were apart: in lossy plans for up to half of the time.
  const Duration between_tries =
      (loses_packets_ ? 1 + kMaxTriesLost : 1) * engine.max_rto + 2 * engine.base_rtt;
  const Duration patience = std::max(engine.peer_timeout - between_tries, engine.peer_timeout / 2);
  if (!history_.were_apart(now, step.host, step.peer, request.posted, patience) &&
      !history_.seemed_apart(now, step.host, step.peer, between_tries, patience) &&
      !history_.everything_was_lost(now, step.host, step.peer, patience)) {
    return false;
  }
  const auto* heard = history_.heard(step.host, request.incarnation, step.peer);
  if (status == Status::unresponsive) {
    return heard != nullptr;
  }
  // An acknowledgement makes the peer reachable; a lazy host may have heard one since it posted.
  return heard == nullptr || !heard->ack || is_lazy(step.host);
}

// Checks what a finished request has done to memory.
void Judge::check_effect(const PostedRequest& request, std::uint64_t number, std::uint32_t host) {
  const Step& step = request.step;
  const bool ok = request.status == Status::ok;
  if (request.buffer.exists() && !request.buffer.margins_intact()) {
    return condemn(name(request) + ": bytes around its buffer have changed");
  }
  if (request.kind == Kind::read) {
    return check_read(request);
  }
  const std::size_t head = request.kind == Kind::send && step.length >= kNumbered ? kNumbered : 0;
  if (request.buffer.exists() &&
      (!is_painted(request.buffer.bytes().subspan(head), request.key, head) ||
       std::memcmp(request.buffer.bytes().data(), &number, head) != 0)) {
    return condemn(name(request) + ": its source memory has changed");
  }
  if (request.kind == Kind::write && ok && request.has_place &&
      !is_painted(request.target->memory.bytes().subspan(request.offset, step.length),
                  request.key)) {
    condemn(name(request) + " is complete, but its bytes are not all in place; host " +
            std::to_string(host));
  }
}

// A read must bring the content of the life that it asked.
void Judge::check_read(const PostedRequest& request) {
  const auto bytes = request.buffer.bytes();
  const std::uint64_t content =
      processes_[request.step.peer][request.target_incarnation].content_key();
  const bool right = request.status == Status::ok
                         ? is_painted(bytes, content, request.offset)
                         : is_partly_painted(bytes, content, request.offset);
  if (!right) {
    condemn(name(request) + ": the read brought wrong bytes");
  }
}

// A write has ended well, and its immediate data, if any, has been delivered: from now on no byte
// may arrive in its place. Not where strangers replay packets: those may write whatever they have a
// key for.
void Judge::take_back_place(PostedRequest& request) {
  const bool announced = !request.step.immediate || !request.delivered_to.empty();
  if (strangers_ || request.kind != Kind::write || !request.has_place || !announced ||
      request.state != PostedRequest::State::done || request.status != Status::ok) {
    return;
  }
  Process::Region& region = *request.target;
  region.slots.take_back(region.memory.bytes(), request.offset);
  if (!region.frozen.empty()) {
    std::fill_n(region.frozen.begin() + static_cast<std::ptrdiff_t>(request.offset),
                request.step.length, kScribble);
  }
}

// --- The end

// A region holds what it was painted with, or the messages that were assigned places in it; one
// that was deregistered holds exactly what it held then.
void Judge::check_regions(std::uint32_t host, const Process& process) {
  for (const Process::Region& region : process.regions()) {
    if (region.kind == RegionKind::phantom) {
      continue;
    }
    const auto bytes = region.memory.bytes();
    const bool margins = region.memory.margins_intact();
    const bool explained = region.kind == RegionKind::readable
                               ? is_painted(bytes, process.content_key())
                               : region.slots.explains(bytes);
    const bool frozen =
        region.frozen.empty() || std::equal(bytes.begin(), bytes.end(), region.frozen.begin());
    if (!margins || !explained || !frozen) {
      condemn("memory of host " + std::to_string(host) + ", region " +
              std::to_string(static_cast<int>(region.kind)) +
              (!margins  ? ": written outside"
               : !frozen ? ": written after it was deregistered"
                         : ": holds bytes that nobody may have written"));
    }
  }
}

void Judge::check_at_the_end() {
  for (std::uint32_t host = 0; host < processes_.size(); ++host) {
    polled(host);
  }
  std::map<Anonymous, std::uint32_t> anonymous_ok;
  for (const PostedRequest& request : requests_) {
    const Step& s = request.step;
    if (request.state == PostedRequest::State::open) {
      condemn(name(request) + " has not completed");
    }
    if (request.state == PostedRequest::State::done && request.buffer.exists() &&
        !request.buffer.still_scribbled()) {
      condemn(name(request) + ": its memory was written after its completion");
    }
    if (request.state != PostedRequest::State::done || request.status != Status::ok) {
      continue;
    }
    const bool announces =
        request.kind == Kind::send || (request.kind == Kind::write && s.immediate);
    if (is_anonymous(request)) {
      ++anonymous_ok[{s.host, plan_.hosts[s.host].endpoints[s.endpoint].qpn.value(), s.peer,
                      plan_.hosts[s.peer].endpoints[s.peer_endpoint].qpn.value(), s.length}];
    } else if (announces && request.delivered_to.empty()) {
      // The peer acknowledged a message that its application never saw.
      condemn(name(request) + " completed well and was never delivered");
    }
  }
  for (const auto& [key, count] : anonymous_ok) {
    if (anonymous_delivered_[key] < count) {
      condemn("fewer short messages have arrived than completed well");
    }
  }
  for (const PostedReceive& receive : receives_) {
    if (receive.state == PostedReceive::State::done && receive.buffer.exists() &&
        !receive.buffer.still_scribbled()) {
      condemn("the memory of a receive was written after its completion");
    }
  }
  for (std::uint32_t host = 0; host < processes_.size(); ++host) {
    for (const Process& process : processes_[host]) {
      check_regions(host, process);
    }
  }
}

}  // namespace weft::swarm
