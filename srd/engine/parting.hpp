// Owns what two processes tell each other when one of them ends. [wire 4.10]
#pragma once

#include <optional>
#include <utility>

#include "srd/engine/receive_window.hpp"
#include "srd/net/machine.hpp"

namespace weft::srd {

// Towards one peer; `window` is what has come from it. Either process may go on after all, and say
// so again later: what was told counts only as long as the numbers that were told with it are
// right.
class Parting {
 public:
  // This process ends; `next` is the number that its next packet to the peer would have. True: the
  // peer is to be told, and asked whether it has heard of everything.
  [[nodiscard]] bool take_leave(const ReceiveWindow& window, Leave how, Psn next) {
    if (how == Leave::begin) {
      awaited_to_ = window.open() ? std::optional(window.top()) : std::nullopt;
    }
    const bool again =
        how == Leave::begin || told_ != next || (how == Leave::ask_again && is_awaited(window));
    if (again && !has_left(window)) {
      next_ = next;
    }
    return owes_word();
  }
  // The peer may wait for acknowledgements of what had come when this process began to leave.
  [[nodiscard]] bool is_awaited(const ReceiveWindow& window) const {
    return awaited_to_ && window.una().before(*awaited_to_) && !has_left(window);
  }
  // The peer does not answer: it counts as gone until it sends again.
  void stop_waiting(const ReceiveWindow& window) { peer_next_ = window.top(); }

  // The number that the next acknowledgement is to tell, if it is to tell one.
  [[nodiscard]] bool owes_word() const { return next_.has_value(); }
  [[nodiscard]] std::optional<Psn> take_word() {
    told_ = next_ ? next_ : told_;
    return std::exchange(next_, std::nullopt);
  }

  // The peer ends, and its next packet would have this number.
  void note_leave(Psn next) { peer_next_ = next; }
  // All that the peer sent before it said so is here, and nothing else: it waits for nothing.
  [[nodiscard]] bool has_left(const ReceiveWindow& window) const {
    return peer_next_ && (!window.open() || *peer_next_ == window.top());
  }

 private:
  std::optional<Psn> next_;        // to be told
  std::optional<Psn> told_;        // the latest that was
  std::optional<Psn> awaited_to_;  // the window's end when this process began to leave
  std::optional<Psn> peer_next_;   // what the peer has told
};

}  // namespace weft::srd
