// Owns what the parts of one engine share: its configuration, what follows from it, and the tables.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "srd/base/rng.hpp"
#include "srd/engine/cc/credit_scheduler.hpp"
#include "srd/engine/completion_queue.hpp"
#include "srd/engine/config.hpp"
#include "srd/engine/counters.hpp"
#include "srd/engine/endpoint.hpp"
#include "srd/engine/loss_detector.hpp"
#include "srd/engine/memory_table.hpp"
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
  CcTuning cc_tuning;
  const RetransmissionTuning patience;
  const std::uint32_t window_span;
  const Bytes credit_window;  // what a sender may send before it is granted anything
  Rng rng;

  Counters own_counters;
  Counters& counters;
  Observer* observer = nullptr;
  std::optional<MemoryTable> own_memory;
  MemoryTable& memory;

  EndpointTable endpoints;
  CompletionQueue completions;
  PeerTable peers;
  Scheduler schedule;
  WorkTable works;
  CreditScheduler grants;  // to peers that want to send to us
  OwedPool<ReceiveWindow::Result> told_once;
  OwedPool<Echo> probe_echoes;
  GapFinder gaps;  // of the acknowledgement that is being taken
};

}  // namespace weft::srd
