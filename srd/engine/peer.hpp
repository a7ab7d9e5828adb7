// Owns one reliability context: everything the engine knows about one attachment of one remote NIC.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "srd/engine/cc/congestion_control.hpp"
#include "srd/engine/cc/credit_balance.hpp"
#include "srd/engine/immediate_table.hpp"
#include "srd/engine/loss_detector.hpp"
#include "srd/engine/owed.hpp"
#include "srd/engine/paths/peer_paths.hpp"
#include "srd/engine/peer_life.hpp"
#include "srd/engine/receive_window.hpp"
#include "srd/engine/retransmission_timer.hpp"
#include "srd/engine/send_window.hpp"
#include "srd/engine/work.hpp"

namespace weft::srd {

// Who the peer is. Key of the peer table.
struct PeerKey {
  Address address;
  AttachmentId attachment;
  friend bool operator==(const PeerKey&, const PeerKey&) = default;
};

// A packet that has to be echoed.
struct Echo {
  TimePoint arrived{};
  Psn psn;
  std::uint32_t send_time = 0;
  std::uint16_t path = 0;
  std::uint8_t attempt = 0;
  bool valid = false;
  bool congested = false;
  bool probe = false;
};

// The receiving half: little, because in an incast there are thousands of them.
// Ordered by how often it is looked at.
struct Inbound {
  Echo echo;
  std::uint8_t unacknowledged = 0;  // packets since the last ack
  bool gap_at_end = false;          // an acknowledgement that was asked for had to leave gaps
  bool grant = false;               // credits are to be told
  std::uint32_t marked = 0;         // accepted packets that carried a congestion mark
  struct Placed {
    std::uint32_t message = 0;
    std::uint64_t address = 0;
  } latest_placed;                   // for the counters, as the next one
  std::uint32_t latest_message = 0;  // the one posted last among those delivered
  Qpn reply_to;                      // the peer's endpoint: acks are steered by it
  Qpn reply_from;
  ReceiveWindow window;
  std::uint32_t demand = 0;                    // credits the peer wants, cumulative
  std::uint32_t reads_served = 0;              // responses under way
  OwedList again;                              // trimmed and deferred packets, not told yet
  OwedList probes;                             // their echoes: each is answered
  std::unique_ptr<ImmediateTable> immediates;  // made on first use

  // There is something that the next acknowledgement has to say.
  [[nodiscard]] bool owes_ack() const {
    return echo.valid || grant || !again.empty() || !probes.empty();
  }
};

// The sending half, made when the first request to this peer is posted.
struct alignas(kCacheLine) Outbound {
  Outbound(Psn first, PeerPaths&& spread, const CongestionControl& control,
           const RetransmissionTuning& tuning)
      : next_message(first.value() + 1),
        next_read(first.value() + 1),
        timer(tuning),
        paths(std::move(spread)),
        window(first),
        cc(control),
        chain(first) {}

  // --- What every packet looks at, side by side.
  WorkQueues queues;
  TimePoint paced_until{};  // nothing leaves before
  std::uint8_t turn = 0;    // which queue is next
  bool muted = false;       // given up: nothing leaves until the peer is heard or work is posted
  bool tail_probe_wanted = false;
  bool ask_again = false;    // for credits: nobody has answered
  std::uint32_t marked = 0;  // packets of ours that have arrived with a mark, as the peer says
  Psn asked;                 // latest number that asked for an acknowledgement
  Qpn last_from;             // endpoints of the latest request, for packets that belong to none
  Qpn last_to;
  std::uint32_t next_message;
  std::uint32_t next_read;
  PathId asked_along;  // that the latest question took
  RetransmissionTimer timer;
  LossDetector losses;
  CreditBalance credits;
  PeerPaths paths;
  wire::CommonHeader header{};  // what is the same in all data packets
  alignas(kCacheLine) SendWindow window;
  alignas(kCacheLine) CongestionControl cc;

  // --- The rest
  std::uint32_t reads_outstanding = 0;
  std::uint32_t last_probe_time = 0;  // as it travels in the packet
  alignas(kCacheLine) PathChain chain;

  // A packet will leave soon. With a thousand peers none of this is in the nearest cache.
  void prefetch_to_send() const {
    const auto* const window_begins = reinterpret_cast<const std::byte*>(&window);
    prefetch(this,
             static_cast<std::size_t>(window_begins - reinterpret_cast<const std::byte*>(this)));
    window.prefetch_next();
    prefetch(&cc, kCacheLine);
  }
  // An acknowledgement is being looked at.
  void prefetch_to_control() const { prefetch(&cc, sizeof cc); }

  [[nodiscard]] bool has_work() const { return queues.has_ready() || window.has_lost(); }
  // A packet before this one asked for an acknowledgement and is under way.
  [[nodiscard]] bool awaits_answer_before(Psn psn) {
    return asked != psn && window.contains(asked) &&
           window.slot(asked).state == SendSlot::State::in_flight;
  }
};

// What is known of the process behind a peer. Whoever keeps something that only its present life
// understands (a key, a number it gave) compares `restarts` before using it.
struct PeerHistory {
  Life life;
  bool life_known = false;
  std::uint32_t restarts = 0;  // later lives that were noticed
};

// Where a peer stands in the lists of the scheduler, whose part of the peer this is.
class Turn {
  friend class Scheduler;

  TimePoint reply_due_ = kNever;  // of the delayed reply that it is owed
  TimePoint deadline_ = kNever;   // in the heap
  bool ready_ = false;
  bool reply_queued_ = false;
};

struct alignas(kCacheLine) Peer {
  PeerKey key;
  PeerId id{0xFFFFFFFF};  // until the record is in use
  PeerLife life;
  PeerWorks works;     // our requests to it and our answers to its reads
  bool heard = false;  // an acknowledgement has come, ever
  Turn turn;
  std::unique_ptr<Outbound> out;
  Inbound in;
};

}  // namespace weft::srd
