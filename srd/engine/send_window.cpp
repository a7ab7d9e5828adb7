// Owns the growth of a send window.
#include "srd/engine/send_window.hpp"

namespace weft::srd {

void SendWindow::grow() {
  constexpr std::size_t kFirst = 8;
  MaskedArray<SendSlot> old(slots_.next_size(kFirst));
  old.swap(slots_);
  for (std::size_t i = 0; i < old.size(); ++i) {
    slots_[old[i].psn.value()] = old[i];
  }
  const auto renumber = [&](std::uint16_t index) {
    return index == kEnd ? kEnd
                         : static_cast<std::uint16_t>(old[index].psn.value() & slots_.mask());
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
