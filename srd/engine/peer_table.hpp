// Owns the peers of an engine: one record for each reliability context, found by its key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "srd/base/flat_map.hpp"
#include "srd/base/slab.hpp"
#include "srd/engine/peer.hpp"

namespace weft::srd {

// A record never moves, and its id stays the same until forget(). Every record in use is found by
// its key, and its id is its place in the table; every other record is new, as from its
// constructor.
class PeerTable {
 public:
  explicit PeerTable(std::uint32_t limit) : peers_(limit) {}

  // nullptr if there is none. Packets of one peer often come in a row.
  [[nodiscard]] Peer* find(const PeerKey& key) {
    return latest_ != nullptr && latest_->key == key ? latest_ : look_up(key);
  }
  // The same for a caller that asks in advance: does not change which peer find() tries first.
  [[nodiscard]] const Peer* peek(const PeerKey& key) const {
    const std::uint32_t index = by_key_.find(key);
    return index == kAbsent ? nullptr : &peers_[index];
  }
  // nullptr if the table is full.
  [[nodiscard]] Peer* find_or_make(const PeerKey& key) {
    if (Peer* const known = look_up(key)) {
      return known;
    }
    const std::uint32_t index = peers_.allocate();
    if (index == Peers::kNone) {
      return nullptr;
    }
    Peer& peer = peers_[index];
    peer.key = key;
    peer.id = PeerId{index};
    by_key_.insert(key, index);
    return &peer;
  }
  // Nothing may refer to it any more.
  void forget(Peer& peer) {
    const std::uint32_t index = peer.id.value();
    by_key_.erase(peer.key);
    if (latest_ == &peer) {
      latest_ = nullptr;
    }
    peer = Peer{};
    peers_.release(index);
  }

  // Whether the id is one of a record in use.
  [[nodiscard]] bool knows(PeerId id) const {
    return id.value() < peers_.capacity() && peers_[id.value()].id == id;
  }
  // It must be in use, or have been.
  [[nodiscard]] Peer& operator[](PeerId id) { return peers_[id.value()]; }
  [[nodiscard]] const Peer& operator[](PeerId id) const { return peers_[id.value()]; }

  // Every record in use.
  template <class F>
  void each(F&& f) {
    visit(*this, f);
  }
  template <class F>
  void each(F&& f) const {
    visit(*this, f);
  }

  // A hint: find() or peek() will be called soon.
  void prefetch(const PeerKey& key) const { by_key_.prefetch(key); }

 private:
  struct Hash {
    std::size_t operator()(const PeerKey& key) const noexcept {
      return std::hash<Address>{}(key.address) + key.attachment.value() * 0x9E3779B97F4A7C15ULL;
    }
  };
  template <class Table, class F>
  static void visit(Table& table, F& f) {
    for (std::uint32_t i = 0; i < table.peers_.capacity(); ++i) {
      if (table.knows(PeerId{i})) {
        f(table.peers_[i]);
      }
    }
  }
  using Peers = Slab<Peer, 8>;  // records are large, and most engines know few
  using ByKey = FlatMap<PeerKey, Hash>;
  static constexpr std::uint32_t kAbsent = ByKey::kAbsent;

  [[nodiscard]] Peer* look_up(const PeerKey& key) {
    const std::uint32_t index = by_key_.find(key);
    return index == kAbsent ? nullptr : latest_ = &peers_[index];
  }

  Peers peers_;
  ByKey by_key_;
  Peer* latest_ = nullptr;  // the latest one that was found
};

}  // namespace weft::srd
