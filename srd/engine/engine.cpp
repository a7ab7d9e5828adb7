// Owns what the engine's user calls: peers, endpoints, posting and polling.
#include "srd/engine/engine.hpp"

#include <algorithm>

#include "srd/base/check.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/place.hpp"

namespace weft::srd {
Engine::Engine(const EngineConfig& config, Counters* counters, MemoryTable* memory)
    : parts_(config, counters, memory) {}

[[gnu::hot]] void Engine::on_timeout(TimePoint at) {
  constexpr Duration kMinNap = std::chrono::microseconds{1};
  const TimePoint now = advance(at);
  parts_.schedule.queue_overdue_replies(now);
  if (mutated(Mutation::keep_deadlines)) [[unlikely]] {
    return;
  }
  while (Peer* const peer = parts_.schedule.take_due(now)) {
    Sender& sender = *peer->sender;
    sender.on_timeout(now);
    if (const TimePoint next = sender.next_deadline(); next != kNever) {
      parts_.schedule.arm(*peer, std::max(next, now + kMinNap));
    }
  }
}

// Grants that are due travel in acknowledgements. A peer that sends nothing for as long as it takes
// to be given up would only hold the link for itself; if it lives it asks again. While any sender
// waits, grants are due all the time: if none was for long, this process has slept and heard no
// peer meanwhile. [wire 4.8]
void Engine::queue_grants(TimePoint now) {
  if (now - granted_at_ > parts_.patience.max_rto) {
    granting_since_ = now;
  }
  granted_at_ = now;
  while (const std::optional<CreditScheduler::Grant> grant = parts_.grants.next(now)) {
    Peer& peer = parts_.peers[grant->peer];
    if (now - std::max(peer.receiver.last_heard(), granting_since_) > parts_.config.peer_timeout) {
      parts_.grants.withdraw(grant->peer);
    }
    peer.receiver.note_grant();
    parts_.schedule.reply_now(peer);
  }
}

Result<PeerId> Engine::peer(const Address& address, AttachmentId attachment) {
  Peer* const peer = parts_.peers.find_or_make({address, attachment});
  if (peer == nullptr) {
    return fail(ErrorCode::out_of_resources, "the engine knows " +
                                                 std::to_string(parts_.config.max_peers) +
                                                 " peers already; raise max_peers");
  }
  peer->life.introduce();
  return peer->id;
}

std::optional<PeerHistory> Engine::history_of(PeerId peer) const {
  if (!parts_.peers.knows(peer)) {
    return std::nullopt;
  }
  const PeerLife& life = parts_.peers[peer].life;
  return PeerHistory{life.present(), life.known(), life.restarts()};
}

Result<void> Engine::open_endpoint(Qpn qpn, const EndpointConfig& config) {
  if (qpn.value() > wire::kQpnMask) {
    return fail(ErrorCode::invalid_argument,
                "queue pair number " + std::to_string(qpn.value()) + " has more than 24 bits");
  }
  if (parts_.endpoints.find(qpn) != nullptr) {
    return fail(ErrorCode::already_exists,
                "endpoint " + std::to_string(qpn.value()) + " is open already");
  }
  parts_.endpoints.insert(qpn, config);
  return {};
}

void Engine::close_endpoint(Qpn qpn) {
  Endpoint* endpoint = parts_.endpoints.find(qpn);
  if (endpoint == nullptr) {
    return;
  }
  if (!mutated(Mutation::forget_flush)) {
    endpoint->works.for_each(parts_.works.slab(), [&](std::uint32_t index) {
      parts_.works.abandon(index, Status::flushed);
    });
  }
  for (; !endpoint->receives.empty(); endpoint->receives.pop()) {
    Completion& completion = parts_.completions.push_receive();
    completion.cookie = endpoint->receives.front().cookie;
    completion.status = Status::flushed;
    completion.endpoint = qpn;
  }
  parts_.endpoints.erase(qpn);
}

void Engine::set_receiving(Qpn qpn, bool receiving) {
  if (Endpoint* endpoint = parts_.endpoints.find(qpn)) {
    endpoint->config.receiving = receiving;
  }
}

void Engine::set_qkey(Qpn qpn, std::uint32_t qkey) {
  if (Endpoint* endpoint = parts_.endpoints.find(qpn)) {
    endpoint->config.qkey = qkey;
  }
}

// What all kinds of requests have in common: limits, the work's record, its memory. What fails here
// leaves nothing behind.
[[gnu::always_inline]] inline PostResult Engine::begin(const RequestBase& request, WorkKind kind,
                                                       const SegmentList& segments, Bytes limit,
                                                       NewRequest& made) {
  const Bytes length = total_length(segments);
  if (length > limit) {
    return PostResult::too_long;
  }
  Endpoint* const endpoint = parts_.endpoints.find(request.source);
  if (endpoint == nullptr) {
    return PostResult::no_such_endpoint;
  }
  if (!parts_.peers.knows(request.peer)) {
    return PostResult::no_such_peer;
  }
  Peer& peer = parts_.peers[request.peer];
  const auto [index, begun] = parts_.works.begin_request(peer, *endpoint, kind, request.destination,
                                                         static_cast<std::uint32_t>(length));
  if (begun == nullptr) {
    return PostResult::queue_full;
  }
  Work& work = *begun;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    work.data[i] = segments[i].data;
    work.lengths[i] = segments[i].length;
  }
  work.cookie = request.cookie;
  work.rnr_retry = request.rnr_retry;
  work.key = request.qkey;
  made = {index, begun, &parts_.sender(peer)};
  return PostResult::accepted;
}

[[gnu::hot]] PostResult Engine::post(const SendRequest& request) {
  NewRequest made;
  const PostResult result =
      begin(request, WorkKind::send, request.segments, parts_.config.mtu_payload, made);
  if (result != PostResult::accepted) {
    return result;
  }
  Work& work = *made.work;
  work.has_immediate = request.immediate.has_value();
  work.immediate = request.immediate.value_or(0);
  work.message = made.sender->number_message();
  made.sender->enqueue_request(made.index, work);
  return result;
}

[[gnu::hot]] PostResult Engine::post(const WriteRequest& request) {
  NewRequest made;
  const PostResult result = begin(request, WorkKind::write, request.segments, kMaxTransfer, made);
  if (result != PostResult::accepted) {
    return result;
  }
  Work& work = *made.work;
  work.has_immediate = request.immediate.has_value();
  work.immediate = request.immediate.value_or(0);
  work.remote_address = request.remote_address;
  work.key = request.remote_key.value();
  work.phantom = request.phantom;
  work.packets =
      std::max(1U, (work.length + parts_.config.mtu_payload - 1) / parts_.config.mtu_payload);
  work.message = made.sender->number_message();
  made.sender->enqueue_request(made.index, work);
  return result;
}

PostResult Engine::post(const ReadRequest& request) {
  NewRequest made;
  const PostResult result = begin(request, WorkKind::read, request.segments, kMaxTransfer, made);
  if (result != PostResult::accepted) {
    return result;
  }
  Work& work = *made.work;
  work.remote_address = request.remote_address;
  work.key = request.remote_key.value();
  if (mutated(Mutation::reuse_read_numbers)) {
    made.sender->next_read() = 1;
  }
  parts_.works.number_read(made.index, work, made.sender->next_read());
  made.sender->enqueue_request(made.index, work);
  return result;
}

void Engine::acquaint(std::uint32_t domain, const Address& address, bool known) {
  delivery_.acquaint(domain, address, known);
}

[[gnu::hot]] PostResult Engine::post_receive(Qpn qpn, const ReceiveRequest& request) {
  Endpoint* endpoint = parts_.endpoints.find(qpn);
  if (endpoint == nullptr) {
    return PostResult::no_such_endpoint;
  }
  return endpoint->receives.push(request) ? PostResult::accepted : PostResult::queue_full;
}

void Engine::flush(PeerId id, Qpn source) {
  const Endpoint* const endpoint = parts_.endpoints.find(source);
  if (endpoint == nullptr || !history_of(id)) {
    return;
  }
  const auto end = [&](std::uint32_t index) {
    const Work& work = parts_.works[index];
    if (work.peer == id && work.source == source && !work.is_response()) {
      parts_.works.abandon(index, Status::flushed);
    }
  };
  const Peer& peer = parts_.peers[id];
  if (endpoint->works.requests() <= peer.works.requests()) {
    endpoint->works.for_each(parts_.works.slab(), end);
  } else {
    peer.works.for_each(parts_.works.slab(), end);
  }
}

// Work whose memory the user takes back. `concerns` says by the cookie which work that is.
void Engine::revoke(const std::function<bool(std::uint64_t cookie)>& concerns) {
  const auto revoke_work = [&](std::uint32_t index) {
    Work& work = parts_.works[index];
    if (!concerns(work.cookie)) {
      return;
    }
    // What has left may have arrived, with only the acknowledgement missing: to fail it would turn
    // a success into an error. Its memory is needed again only if it was lost.
    const bool left = work.kind != WorkKind::read && work.all_sent() && !work.queued();
    if (left) {
      work.revoked = true;
    } else {
      parts_.works.abandon(index, Status::local_protection);
    }
  };
  for (Endpoint& endpoint : parts_.endpoints) {
    endpoint.works.for_each(parts_.works.slab(), revoke_work);
    for (std::size_t left = endpoint.receives.size(); left > 0; --left) {
      const ReceiveRequest receive = endpoint.receives.front();
      endpoint.receives.pop();
      if (!concerns(receive.cookie)) {
        (void)endpoint.receives.push(receive);  // behind the others: the order stays
        continue;
      }
      delivery_.fail_receive(endpoint, receive);
    }
  }
}

[[gnu::hot]] std::size_t Engine::poll(std::span<Completion> completions) {
  std::size_t count = 0;
  for (; count < completions.size() && parts_.completions.next() != nullptr;
       parts_.completions.pop()) {
    completions[count++] = *parts_.completions.next();
  }
  return count;
}

}  // namespace weft::srd
