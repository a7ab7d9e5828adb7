// Owns the results that a receiver tells once: packets that were trimmed or deferred, which their
// senders are to send again.
#pragma once

#include <cstdint>

#include "srd/base/slab.hpp"
#include "srd/engine/receive_window.hpp"

namespace weft::srd {

// The results that are owed to one peer, the oldest first. They lie in a pool that all peers share:
// most peers never have any, and a burst that is refused as a whole leaves one for each packet.
struct ToldOnce {
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  [[nodiscard]] bool empty() const { return first == kNone; }

  std::uint32_t first = kNone;
  std::uint32_t last = kNone;
};

class ToldOncePool {
 public:
  // Four whole windows of packets. What finds no room is not told: the sender's timer finds out.
  static constexpr std::uint32_t kLimit = 4 * PsnBitmap::kSpan;

  void push(ToldOnce& owed, const ReceiveWindow::Result& result) {
    const std::uint32_t index = entries_.allocate();
    if (index == Slab<Entry>::kNone) {
      return;
    }
    entries_[index] = {result, ToldOnce::kNone};
    (owed.empty() ? owed.first : entries_[owed.last].next) = index;
    owed.last = index;
  }
  // There must be one.
  [[nodiscard]] ReceiveWindow::Result take(ToldOnce& owed) {
    const std::uint32_t index = owed.first;
    const Entry entry = entries_[index];
    owed.first = entry.next;
    entries_.release(index);
    return entry.result;
  }
  void forget(ToldOnce& owed) {
    while (!owed.empty()) {
      (void)take(owed);
    }
  }

 private:
  struct Entry {
    ReceiveWindow::Result result;
    std::uint32_t next = ToldOnce::kNone;
  };

  Slab<Entry> entries_{kLimit};
};

}  // namespace weft::srd
