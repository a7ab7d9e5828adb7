// Owns one reliability context: everything the engine knows about one attachment of one remote NIC.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "srd/engine/immediate_table.hpp"
#include "srd/engine/owed.hpp"
#include "srd/engine/peer_life.hpp"
#include "srd/engine/receive_window.hpp"
#include "srd/engine/sender.hpp"
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
  OwedList again;                              // trimmed and deferred packets, not told yet
  OwedList probes;                             // their echoes: each is answered
  std::unique_ptr<ImmediateTable> immediates;  // made on first use

  // There is something that the next acknowledgement has to say.
  [[nodiscard]] bool owes_ack() const {
    return echo.valid || grant || !again.empty() || !probes.empty();
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
  PeerWorks works;  // our requests to it and our answers to its reads
  Turn turn;
  std::unique_ptr<Sender> sender;
  Inbound in;
};

}  // namespace weft::srd
