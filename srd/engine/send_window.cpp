// Owns the growth of a send window.
#include "srd/engine/send_window.hpp"

#include <algorithm>

namespace weft::srd {

void SendWindow::grow() {
  constexpr std::size_t kFirst = 8;
  std::vector<SendSlot> old(std::max(kFirst, slots_.size() * 2));
  old.swap(slots_);
  for (const SendSlot& slot : old) {
    slots_[slot.psn.value() & mask()] = slot;
  }
  const auto renumber = [&](std::uint16_t index) {
    return index == kEnd ? kEnd : static_cast<std::uint16_t>(old[index].psn.value() & mask());
  };
  for (Psn psn = una_; psn != next_; ++psn) {
    SendSlot& moved = slot(psn);
    moved.previous = renumber(moved.previous);
    moved.following = renumber(moved.following);
  }
  const auto renumber_ends = [&](List& list) {
    list.head = renumber(list.head);
    list.tail = renumber(list.tail);
  };
  renumber_ends(in_flight_);
  renumber_ends(lost_);
  for (List& list : deferred_) {
    renumber_ends(list);
  }
}

}  // namespace weft::srd
