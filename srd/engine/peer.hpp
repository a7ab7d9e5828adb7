// Owns one reliability context: everything the engine knows about one attachment of one remote NIC.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "srd/engine/peer_life.hpp"
#include "srd/engine/receiver.hpp"
#include "srd/engine/sender.hpp"
#include "srd/engine/work.hpp"

namespace weft::srd {

// Which process on which NIC the peer is: the key of the peer table.
struct PeerKey {
  Address address;
  AttachmentId attachment;
  friend bool operator==(const PeerKey&, const PeerKey&) = default;
};

// What is known of the process behind a peer. Code that keeps something which only the present life
// understands (a key, a number that it gave) compares `restarts` before it uses that.
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
  Receiver receiver;
};

}  // namespace weft::srd
