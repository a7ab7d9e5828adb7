// Owns what the parts of one engine share: its configuration, what follows from it, and the tables.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "srd/base/rng.hpp"
#include "srd/engine/cc/credit_balance.hpp"
#include "srd/engine/cc/credit_scheduler.hpp"
#include "srd/engine/completion_backlog.hpp"
#include "srd/engine/config.hpp"
#include "srd/engine/counters.hpp"
#include "srd/engine/endpoint.hpp"
#include "srd/engine/loss_detector.hpp"
#include "srd/engine/memory_table.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/observer.hpp"
#include "srd/engine/owed.hpp"
#include "srd/engine/peer_table.hpp"
#include "srd/engine/scheduler.hpp"
#include "srd/engine/work_table.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {

// Each member keeps its own invariants; this has none. What belongs to one peer is in Peer.
struct EngineParts {
  EngineParts(const EngineConfig& configuration, Counters* given_counters,
              MemoryTable* given_memory);
  EngineParts(const EngineParts&) = delete;
  EngineParts& operator=(const EngineParts&) = delete;

  void tell(Event::Kind kind, TimePoint when, PeerId peer, Psn psn, PathId path,
            std::uint64_t detail = 0, Status status = Status::ok) {
    if (observer != nullptr) [[unlikely]] {
      observer->on_event({kind, when, peer, psn, path, status, detail});
    }
  }
  // Payload of a request that has not left yet. A read has none.
  [[nodiscard]] Bytes unsent_bytes(const Work& work) const {
    const Bytes sent = Bytes{work.next_packet} * config.mtu_payload;
    return work.kind == WorkKind::read || sent >= work.length ? 0 : work.length - sent;
  }
  // Payload that a request still wants credits for: a packet that was refused wants them again.
  [[nodiscard]] Bytes wanted_bytes(const Work& work) const {
    const Bytes at = Bytes{work.resend} * config.mtu_payload;
    const bool again = work.resend != Work::kNoPacket && work.kind != WorkKind::read;
    return unsent_bytes(work) + (again ? std::min<Bytes>(work.length - at, config.mtu_payload) : 0);
  }
  [[nodiscard]] wire::CommonHeader common_header(const Peer& peer, wire::PacketType type) const;
  // The last touch of every packet: the checksum and the books.
  void finish(TxPacket& out) {
    if (config.checksum) {
      wire::seal(std::span(out.header).first(out.header_size), out.payload[0], out.payload[1]);
    }
    ++counters.tx_pkts;
    counters.tx_bytes += out.size();
  }

  // The peer's sender, made on first use.
  [[nodiscard]] Sender& sender(Peer& peer) {
    if (!peer.sender) [[unlikely]] {
      peer.sender = std::make_unique<Sender>(*this, peer);
    }
    return *peer.sender;
  }

  const EngineConfig config;
  const PathSelectorKind selector_kind;
  PathTuning path_tuning;
  const CongestionControlKind cc_kind;
  const bool asks_distance;  // of a peer: the congestion control makes use of the answer
  CcTuning cc_tuning;
  const RetransmissionTuning patience;
  const std::uint32_t window_span;
  const Bytes tight_window;    // below two acknowledgements' worth each packet asks for one
  const Duration first_grant;  // how long one takes that is asked for
  const Bytes credit_window;   // what the line carries meanwhile
  UsualOverdraft usual_overdraft;
  Rng rng;

  Counters own_counters;
  Counters& counters;
  Observer* observer = nullptr;
  std::optional<MemoryTable> own_memory;
  MemoryTable& memory;

  EndpointTable endpoints;
  CompletionBacklog completions;
  PeerTable peers;
  Scheduler schedule;
  WorkTable works;
  CreditScheduler grants;  // to peers that want to send to us
  OwedPool<ReceiveWindow::Result> told_once;
  OwedPool<Echo> probe_echoes;
  GapFinder gaps;  // of the acknowledgement that is being taken
};

// What a sender does for each request that is posted, inline.
inline void Sender::make_ready() {
  if (parts_.schedule.make_ready(peer_)) {
    prefetch_to_send();
  }
}

[[gnu::always_inline]] inline void Sender::enqueue_request(std::uint32_t index, Work& work) {
  const Queue queue =
      work.kind == WorkKind::read ? Queue::reads : WorkQueues::queue_for(work.packets, work.length);
  if (mutated(Mutation::favour_one_endpoint) && queue == Queue::singles &&
      work.source.value() % 2 != 0) [[unlikely]] {
    queues_.push_front(parts_.works.slab(), queue, index, work);
  } else {
    queues_.push_back(parts_.works.slab(), queue, index, work);
  }
  if (peer_.works.requests() == 1) {
    timer_.on_exchange_begins();
  }
  credits_.want(work.kind == WorkKind::read ? 0 : work.length);
  if (muted_) [[unlikely]] {
    unmute();
  }
  make_ready();
}

}  // namespace weft::srd
