// Owns what two processes tell each other when one of them ends. [wire 4.10]
#pragma once

#include <optional>
#include <utility>

#include "srd/engine/receive_window.hpp"
#include "srd/net/machine.hpp"

namespace weft::srd {

// Towards one peer; `window` is what has come from it. Either process may go on after all: what the
// peer has told counts for the numbers before the one that it told, and for no later ones.
class Parting {
 public:
  // This process ends, and does not want to know any more what becomes of what it has sent; `next`
  // is the number that its next packet to the peer would have. True: the peer is to be told, and
  // asked whether it has heard of everything.
  [[nodiscard]] bool take_leave(const ReceiveWindow& window, Leave how, Psn next) {
    if (how == Leave::begin) {
      awaited_to_ = window.open() ? std::optional(window.top()) : std::nullopt;
    }
    // One that has left itself is probably gone, and need not be told again.
    const bool is_news = told_ != next || (how == Leave::begin && !peer_next_);
    if ((how != Leave::ask_again && is_news) || (how != Leave::end && is_awaited(window))) {
      next_ = next;
    }
    return owes_word();
  }
  // The peer may wait for acknowledgements of what had come when this process began to leave.
  [[nodiscard]] bool is_awaited(const ReceiveWindow& window) const {
    return awaited_to_ && window.una().before(*awaited_to_) && !has_left(window) && !silent_;
  }
  // The peer does not answer, and counts as gone until it sends data, or asks.
  void stop_waiting() { silent_ = true; }
  void note_sign_of_life() { silent_ = false; }

  // The number that the next acknowledgement is to tell, if it is to tell one.
  [[nodiscard]] bool owes_word() const { return next_.has_value(); }
  [[nodiscard]] std::optional<Psn> take_word() {
    told_ = next_ ? next_ : told_;
    return std::exchange(next_, std::nullopt);
  }

  // The peer ends, and its next packet would have this number. Words may overtake each other, and
  // numbers come round: what is far from the window was told long ago.
  void note_leave(const ReceiveWindow& window, Psn next) {
    if (!peer_next_ || !is_of_now(window, *peer_next_) || peer_next_->before(next)) {
      peer_next_ = next;
    }
  }

 private:
  [[nodiscard]] static bool is_of_now(const ReceiveWindow& window, Psn told) {
    return told.minus(window.una()) <= PsnBitmap::kSpan;
  }
  // The peer has said that it waits for none of what is awaited.
  [[nodiscard]] bool has_left(const ReceiveWindow& window) const {
    return peer_next_ && is_of_now(window, *peer_next_) && !peer_next_->before(*awaited_to_);
  }

  std::optional<Psn> next_;        // to be told
  std::optional<Psn> told_;        // the latest that was
  std::optional<Psn> awaited_to_;  // the window's end when this process began to leave
  std::optional<Psn> peer_next_;   // the highest that the peer has told
  bool silent_ = false;
};

}  // namespace weft::srd
