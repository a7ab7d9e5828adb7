// Owns posting receives and requests, with and without flaws.
#include <cstring>
#include <optional>

#include "emu/swarm/run_state.hpp"

namespace weft::swarm {

using Kind = srd::Completion::Kind;

// Posts receives once half of them are used: a burst may find none, which is one of the cases that
// a run is to meet. Only poll() and a new process do so: Judge::polled() counts on it.
void Run::replenish(std::uint32_t host) {
  for (std::uint32_t e = 0; e < plan_.hosts[host].endpoints.size(); ++e) {
    const EndpointPlan& plan = plan_.hosts[host].endpoints[e];
    const std::uint32_t posted = process(host).receives_posted[e];
    if ((plan.replenish || replenish_all_) && posted * 2 <= plan.receive_depth) {
      post_receives(host, e, plan.receive_depth - posted);
    }
  }
}

void Run::post_receives(std::uint32_t host, std::uint32_t endpoint, std::uint32_t count) {
  Process& p = process(host);
  const EndpointPlan& plan = plan_.hosts[host].endpoints[endpoint];
  for (std::uint32_t i = 0; i < count && p.open[endpoint] && is_up(host); ++i) {
    PostedReceive& receive = judge_.new_receive();
    receive.host = host;
    receive.endpoint = endpoint;
    receive.posted = world_.now();
    receive.buffer = GuardedBuffer(plan.receive_size);
    srd::ReceiveRequest request;
    request.cookie = judge_.last_receive_cookie();
    const std::uint32_t first = plan.receive_size / 3;
    request.segments[0] = {receive.buffer.bytes().data(), first};
    request.segments[1] = {receive.buffer.bytes().data() + first, plan.receive_size - first};
    if (world_.engine(host).post_receive(plan.qpn, request) != srd::PostResult::accepted) {
      judge_.withdraw_last_receive();
      return;
    }
    history_.receives(world_.now(), host, endpoint, ++p.receives_posted[endpoint]);
  }
}

namespace {

// The kind of region that makes a step's flaw a flaw, or else the one that is meant for its act.
RegionKind region_for(const Step& step) {
  switch (step.flaw) {
    case Flaw::wrong_domain:
      return RegionKind::other_domain;
    case Flaw::no_access:
      return step.act == Act::read ? RegionKind::writable : RegionKind::readable;
    default:
      return step.act == Act::read  ? RegionKind::readable
             : step.phantom         ? RegionKind::phantom
             : step.volatile_region ? RegionKind::replaceable
                                    : RegionKind::writable;
  }
}

}  // namespace

// Chooses the region and the address of a write or a read, wrong ones where the step has a flaw.
// False: the region is used up, and the step is left out.
bool Run::choose_place(const Step& step, PostedRequest& r, std::uint64_t& address) {
  Process& target = process(step.peer);
  const RegionKind kind = region_for(step);
  const std::uint64_t size = region_size(kind);
  r.target = &target.region(kind);
  r.remote_key = r.target->key;
  switch (step.flaw) {
    case Flaw::bad_key:
      r.remote_key = srd::RegionKey{static_cast<std::uint32_t>(0xFF0000 | (step.random & 0xFFFF))};
      r.target = nullptr;
      break;
    case Flaw::stale_key:
      if (target.stale_keys().empty()) {
        return false;
      }
      r.remote_key = target.stale_keys().back();
      r.target = nullptr;
      break;
    case Flaw::out_of_bounds: {
      const std::uint64_t beyond[] = {region_address(kind) + size,
                                      region_address(kind) - step.length, ~std::uint64_t{0},
                                      ~std::uint64_t{0} - step.length / 2};
      address = beyond[step.random % 4];
      return step.length > 0;
    }
    case Flaw::straddling: {
      const std::uint64_t inside = 1 + step.random % 200;
      if (step.length <= inside || step.act == Act::read || step.phantom) {
        return false;
      }
      r.offset = r.target->slots.take_end(inside, r.key);
      address = region_address(kind) + r.offset;
      return r.offset != SlotMap::kFull;
    }
    default:
      break;
  }
  if (step.flaw != Flaw::none) {
    r.offset = step.random % 64;
  } else if (step.act == Act::read || step.phantom) {
    r.offset = step.length < size ? step.random % (size - step.length) : size;
  } else {
    r.offset = r.target->slots.take(step.length, r.key);
    r.has_place = true;
  }
  address = region_address(kind) + r.offset;
  return r.offset != SlotMap::kFull && r.offset + step.length <= size;
}

// Posts the request of a step, and keeps in the judge's books what its outcome is compared with:
// the state of both processes at this moment, and the content of its memory. A message of 8 bytes
// or more begins with its number, by which it is known when it arrives.
void Run::request(const Step& step) {
  if (!process(step.host).open[step.endpoint]) {
    return;
  }
  PostedRequest& r = judge_.new_request();
  const std::uint64_t number = judge_.last_cookie();
  r.kind = step.act == Act::send ? Kind::send : step.act == Act::write ? Kind::write : Kind::read;
  r.step = step;
  r.incarnation = process(step.host).incarnation();
  r.posted = world_.now();
  r.target_incarnation = process(step.peer).incarnation();
  if (const auto* known = history_.heard(step.host, r.incarnation, step.peer)) {
    r.known_incarnation = known->incarnation;
  }
  r.key = mix64(plan_.seed ^ number);
  std::uint64_t address = 0;
  if (step.act != Act::send && !choose_place(step, r, address)) {
    return judge_.withdraw_last_request();
  }
  if (!step.phantom) {
    r.buffer = GuardedBuffer(step.length);
    if (step.act != Act::read) {
      paint(r.buffer.bytes(), r.key);
    }
    if (step.act == Act::send && step.length >= sizeof number) {
      std::memcpy(r.buffer.bytes().data(), &number, sizeof number);
    }
  }
  if (!post(step, r, address)) {
    ++outcome_.refused;
    const srd::EngineConfig& config = plan_.hosts[step.host].engine;
    // A refusal is in order only if the limit is reached.
    if (judge_.open_requests_of(step.host) < config.max_work_requests) {
      judge_.condemn("host " + std::to_string(step.host) + " refuses work although only " +
                     std::to_string(judge_.open_requests_of(step.host)) + " requests are open");
    }
    return judge_.withdraw_last_request();
  }
  ++outcome_.requests;
  judge_.accepted(r);
  fairness_.posted(world_.now(), number, step, judge_.open_requests_between(step.host, step.peer));
}

bool Run::post(const Step& step, PostedRequest& r, std::uint64_t address) {
  srd::Engine& engine = world_.engine(step.host);
  const EndpointPlan& target = plan_.hosts[step.peer].endpoints[step.peer_endpoint];
  const auto peer =
      engine.peer(address_of_host(step.peer), plan_.hosts[step.peer].engine.attachment);
  if (!peer) {
    judge_.condemn("no room for a peer: " + peer.error().message);
    return false;
  }
  const auto fill = [&](auto& request) {
    request.peer = *peer;
    request.source = plan_.hosts[step.host].endpoints[step.endpoint].qpn;
    request.destination = step.flaw == Flaw::bad_qpn ? srd::Qpn{0xABC} : target.qpn;
    request.qkey = step.flaw == Flaw::bad_qkey ? target.qkey + 100 : target.qkey;
    request.cookie = judge_.last_cookie();
    request.rnr_retry = step.rnr_retry;
    const std::uint32_t first = step.length / 2;
    std::byte* data = step.phantom ? nullptr : r.buffer.bytes().data();
    request.segments[0] = {data, step.phantom ? step.length : first};
    request.segments[1] = {step.phantom ? nullptr : data + first,
                           step.phantom ? 0 : step.length - first};
  };
  const std::optional<std::uint32_t> immediate =
      step.immediate ? std::optional{static_cast<std::uint32_t>(judge_.last_cookie())}
                     : std::nullopt;
  if (step.act == Act::send) {
    srd::SendRequest request;
    fill(request);
    request.immediate = immediate;
    return engine.post(request) == srd::PostResult::accepted;
  }
  if (step.act == Act::write) {
    srd::WriteRequest request;
    fill(request);
    request.immediate = immediate;
    request.remote_address = address;
    request.remote_key = r.remote_key;
    request.phantom = step.phantom;
    return engine.post(request) == srd::PostResult::accepted;
  }
  srd::ReadRequest request;
  fill(request);
  request.remote_address = address;
  request.remote_key = r.remote_key;
  return engine.post(request) == srd::PostResult::accepted;
}

}  // namespace weft::swarm
