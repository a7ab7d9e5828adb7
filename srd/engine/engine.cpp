// Owns what the engine's user calls: peers, endpoints, posting and polling.
#include "srd/engine/engine.hpp"

#include <algorithm>

#include "srd/base/check.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/place.hpp"

namespace weft::srd {
namespace {

constexpr Bytes kLeastStart = 4;  // packets that may always leave before the peer has answered

// A configuration that did not pass validate() is a bug of the caller's.
template <class T>
T must(Result<T> result) {
  WEFT_CHECK(result.has_value());
  return *result;
}

// How fast payload can arrive.
Rate payload_rate(const EngineConfig& config) {
  const std::uint64_t payload = config.mtu_payload;
  return Rate::bits_per_second(std::max<std::uint64_t>(
      config.line_rate.bits_per_second() / (payload + sizeof(wire::DataHeader)) * payload, 1));
}

// After so long the first grant is there: request and answer wait for frames that are on the wire.
Duration first_grant(const EngineConfig& config) { return config.base_rtt + config.base_rtt / 20; }

// 4 packets in flight on an idle network are lost within this many round trips.
constexpr int kMinRtoInBaseRtts = 3;

}  // namespace

Engine::Engine(const EngineConfig& config, Counters* counters, MemoryTable* memory)
    : config_(config),
      selector_kind_(must(parse_path_selector(config.path_selector))),
      cc_kind_(must(parse_congestion_control(config.congestion_control))),
      patience_{.base_rtt = config.base_rtt,
                .ack_delay = config.ack_delay,
                .min_rto = config.min_rto > Duration::zero() ? config.min_rto
                                                             : kMinRtoInBaseRtts * config.base_rtt,
                .max_rto = config.max_rto,
                .peer_timeout = config.peer_timeout},
      window_span_(std::min(config.window_packets, PsnBitmap::kSpan)),
      rng_(config.seed),
      counters_(counters != nullptr ? *counters : own_counters_),
      memory_(memory != nullptr ? *memory : own_memory_.emplace(memory_salt(config))),
      works_(2 * config.max_work_requests),
      completions_(config.max_completions),
      peers_(config.max_peers),
      schedule_(peers_),
      credit_window_(config.credit_window != 0 ? config.credit_window
                                               : config.line_rate.bytes_in(first_grant(config))),
      credit_grants_(
          CreditTuning{.line_rate = payload_rate(config), .max_peers = config.max_peers}) {
  const Bytes mtu_wire = config.mtu_payload + sizeof(wire::DataHeader);
  cc_tuning_.line_rate = config.line_rate;
  cc_tuning_.base_rtt = config.base_rtt;
  cc_tuning_.mtu_wire = mtu_wire;
  cc_tuning_.header = sizeof(wire::DataHeader);
  cc_tuning_.trimming = config.trimming;
  cc_tuning_.credits = config.receiver_credits;
  path_tuning_.base_rtt = config.base_rtt;
  path_tuning_.trimming = config.trimming;
  // PathHealth abandons and probes what fails; to freeze as well would only keep REPS off good
  // paths.
  path_tuning_.freeze_time = Duration::zero();
  const Bytes bdp_packets = config.line_rate.bytes_in(config.base_rtt) / mtu_wire + 1;
  path_tuning_.bdp_packets = static_cast<std::uint16_t>(std::min<Bytes>(bdp_packets, 0xFFFF));
}

Result<PeerId> Engine::peer(const Address& address, AttachmentId attachment) {
  Peer* const peer = peers_.find_or_make({address, attachment});
  if (peer == nullptr) {
    return fail(ErrorCode::out_of_resources, "the engine knows " +
                                                 std::to_string(config_.max_peers) +
                                                 " peers already; raise max_peers");
  }
  peer->life.introduce();
  return peer->id;
}

std::optional<PeerHistory> Engine::history_of(PeerId peer) const {
  if (!peers_.knows(peer)) {
    return std::nullopt;
  }
  const PeerLife& life = peers_[peer].life;
  return PeerHistory{life.present(), life.known(), life.restarts()};
}

Outbound& Engine::make_outbound(Peer& peer) {
  // The link is shared by all peers that are being sent to: so is what may leave before anyone
  // has answered. Otherwise a host that begins to send to many at once floods all of them. Where
  // receivers ration, their credits say so, and the window need not.
  const Bytes sharers = std::max<Bytes>(busy_peers_, 1);
  const Bytes least = kLeastStart * cc_tuning_.mtu_wire;
  CcTuning tuning = cc_tuning_;
  if (sharers > 1 && !config_.receiver_credits) {
    const Bytes most = config_.line_rate.bytes_in(config_.base_rtt) * 3 / 2;
    tuning.initial_window = std::max(most / sharers, least);
  }
  peer.out = std::make_unique<Outbound>(
      config_.first_psn,
      PeerPaths{PathSelector{selector_kind_, config_.paths, rng_.next(), path_tuning_},
                PathHealthTuning{config_.base_rtt, config_.path_timeouts_to_abandon,
                                 config_.path_probe_interval}},
      CongestionControl{cc_kind_, tuning}, patience_);
  peer.out->header = common_header(peer, wire::PacketType::send);
  peer.out->credits = first_credits(sharers);
  return *peer.out;
}

Result<void> Engine::open_endpoint(Qpn qpn, const EndpointConfig& config) {
  if (qpn.value() > wire::kQpnMask) {
    return fail(ErrorCode::invalid_argument,
                "queue pair number " + std::to_string(qpn.value()) + " has more than 24 bits");
  }
  if (endpoints_.find(qpn) != nullptr) {
    return fail(ErrorCode::already_exists,
                "endpoint " + std::to_string(qpn.value()) + " is open already");
  }
  endpoints_.insert(qpn, config);
  return {};
}

void Engine::close_endpoint(Qpn qpn) {
  Endpoint* endpoint = endpoints_.find(qpn);
  if (endpoint == nullptr) {
    return;
  }
  if (!mutated(Mutation::forget_flush)) {
    endpoint->works.for_each(works_, [&](std::uint32_t index) { abandon(index, Status::flushed); });
  }
  for (; !endpoint->receives.empty(); endpoint->receives.pop()) {
    Completion& completion = completions_.push_receive();
    completion.cookie = endpoint->receives.front().cookie;
    completion.kind = Completion::Kind::receive;
    completion.status = Status::flushed;
    completion.endpoint = qpn;
  }
  endpoints_.erase(qpn);
}

void Engine::set_receiving(Qpn qpn, bool receiving) {
  if (Endpoint* endpoint = endpoints_.find(qpn)) {
    endpoint->config.receiving = receiving;
  }
}

void Engine::set_qkey(Qpn qpn, std::uint32_t qkey) {
  if (Endpoint* endpoint = endpoints_.find(qpn)) {
    endpoint->config.qkey = qkey;
  }
}

[[gnu::always_inline]] inline PostResult Engine::new_work(const RequestBase& request, WorkKind kind,
                                                          const SegmentList& segments, Bytes limit,
                                                          NewWork& made) {
  const Bytes length = total_length(segments);
  if (length > limit) {
    return PostResult::too_long;
  }
  Endpoint* const endpoint = endpoints_.find(request.source);
  if (endpoint == nullptr) {
    return PostResult::no_such_endpoint;
  }
  if (!peers_.knows(request.peer)) {
    return PostResult::no_such_peer;
  }
  Peer& peer = peers_[request.peer];
  if (!request_room()) {
    return PostResult::queue_full;
  }
  const std::uint32_t index = works_.allocate();
  if (index == WorkSlab::kNone) {
    return PostResult::queue_full;
  }
  Work& work = works_[index];
  made = {index, &work, &peer};
  ++local_works_;
  work.begin(kind, request.peer, request.source, request.destination,
             static_cast<std::uint32_t>(length));
  busy_peers_ += peer.works.requests() == 0 ? 1 : 0;
  peer.works.add(works_, index, work);
  endpoint->works.add(works_, index, work);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    work.data[i] = segments[i].data;
    work.lengths[i] = segments[i].length;
  }
  work.cookie = request.cookie;
  work.rnr_retry = request.rnr_retry;
  work.key = request.qkey;
  return PostResult::accepted;
}

[[gnu::always_inline]] inline void Engine::enqueue(const NewWork& made, Outbound& out) {
  Work& work = *made.work;
  Peer& peer = *made.peer;
  const Queue queue =
      work.kind == WorkKind::read ? Queue::reads : WorkQueues::queue_for(work.packets, work.length);
  if (mutated(Mutation::favour_one_endpoint) && queue == Queue::singles &&
      work.source.value() % 2 != 0) [[unlikely]] {
    out.queues.push_front(works_, queue, made.index, work);
  } else {
    out.queues.push_back(works_, queue, made.index, work);
  }
  if (peer.works.requests() == 1) {
    out.timer.on_exchange_begins();
  }
  out.credits.want(unsent_bytes(work));
  unmute(peer);
  make_ready(peer);
}

PostResult Engine::post(const SendRequest& request) {
  NewWork made;
  const PostResult result =
      new_work(request, WorkKind::send, request.segments, config_.mtu_payload, made);
  if (result != PostResult::accepted) {
    return result;
  }
  Work& work = *made.work;
  Outbound& out = outbound(*made.peer);
  work.has_immediate = request.immediate.has_value();
  work.immediate = request.immediate.value_or(0);
  work.message = out.next_message++;
  enqueue(made, out);
  return result;
}

PostResult Engine::post(const WriteRequest& request) {
  NewWork made;
  const PostResult result =
      new_work(request, WorkKind::write, request.segments, kMaxTransfer, made);
  if (result != PostResult::accepted) {
    return result;
  }
  Work& work = *made.work;
  Outbound& out = outbound(*made.peer);
  work.has_immediate = request.immediate.has_value();
  work.immediate = request.immediate.value_or(0);
  work.remote_address = request.remote_address;
  work.key = request.remote_key.value();
  work.phantom = request.phantom;
  work.packets = std::max(1U, (work.length + config_.mtu_payload - 1) / config_.mtu_payload);
  work.message = out.next_message++;
  enqueue(made, out);
  return result;
}

PostResult Engine::post(const ReadRequest& request) {
  NewWork made;
  const PostResult result = new_work(request, WorkKind::read, request.segments, kMaxTransfer, made);
  if (result != PostResult::accepted) {
    return result;
  }
  Work& work = *made.work;
  Outbound& out = outbound(*made.peer);
  work.remote_address = request.remote_address;
  work.key = request.remote_key.value();
  // [wire 4.5] A number comes round after 2^32 reads of this peer, and then may still be in use.
  if (mutated(Mutation::reuse_read_numbers)) {
    out.next_read = 1;
  }
  do {
    work.message = out.next_read++;
  } while (reads_by_number_.find(read_key(work.peer, work.message)) !=
           decltype(reads_by_number_)::kAbsent);
  reads_by_number_.insert(read_key(work.peer, work.message), made.index);
  enqueue(made, out);
  return result;
}

void Engine::acquaint(std::uint32_t domain, const Address& address, bool known) {
  const Acquaintance who{address, domain};
  const bool was_known = acquaintances_.find(who) != decltype(acquaintances_)::kAbsent;
  if (known && !was_known) {
    acquaintances_.insert(who, 0);
  } else if (!known && was_known) {
    acquaintances_.erase(who);
  }
}

bool Engine::is_acquainted(const Endpoint& endpoint, const Peer& peer) const {
  return acquaintances_.find({peer.key.address, endpoint.config.domain}) !=
         decltype(acquaintances_)::kAbsent;
}

PostResult Engine::post_receive(Qpn qpn, const ReceiveRequest& request) {
  Endpoint* endpoint = endpoints_.find(qpn);
  if (endpoint == nullptr) {
    return PostResult::no_such_endpoint;
  }
  return endpoint->receives.push(request) ? PostResult::accepted : PostResult::queue_full;
}

void Engine::flush(PeerId id, Qpn source) {
  const Endpoint* const endpoint = endpoints_.find(source);
  if (endpoint == nullptr || !history_of(id)) {
    return;
  }
  const auto end = [&](std::uint32_t index) {
    const Work& work = works_[index];
    if (work.peer == id && work.source == source && !work.is_response()) {
      abandon(index, Status::flushed);
    }
  };
  const Peer& peer = peers_[id];
  if (endpoint->works.requests() <= peer.works.requests()) {
    endpoint->works.for_each(works_, end);
  } else {
    peer.works.for_each(works_, end);
  }
}

void Engine::revoke(const std::function<bool(std::uint64_t cookie)>& concerns) {
  const auto revoke_work = [&](std::uint32_t index) {
    Work& work = works_[index];
    if (!concerns(work.cookie)) {
      return;
    }
    // What has left may have arrived, with only the acknowledgement missing: to fail it would turn
    // a success into an error. Its memory is needed again only if it was lost.
    const bool left = work.kind != WorkKind::read && work.all_sent() && !work.queued();
    if (left) {
      work.revoked = true;
    } else {
      abandon(index, Status::local_protection);
    }
  };
  for (Endpoint& endpoint : endpoints_) {
    endpoint.works.for_each(works_, revoke_work);
    for (std::size_t left = endpoint.receives.size(); left > 0; --left) {
      const ReceiveRequest receive = endpoint.receives.front();
      endpoint.receives.pop();
      if (!concerns(receive.cookie)) {
        (void)endpoint.receives.push(receive);  // behind the others: the order stays
        continue;
      }
      fail_receive(endpoint, receive);
    }
  }
}

std::size_t Engine::poll(std::span<Completion> completions) {
  std::size_t count = 0;
  for (; count < completions.size() && completions_.next() != nullptr; completions_.pop()) {
    completions[count++] = *completions_.next();
  }
  return count;
}

}  // namespace weft::srd
