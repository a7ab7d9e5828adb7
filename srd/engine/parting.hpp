// Owns what two processes tell each other when one of them ends. [wire 4.10]
#pragma once

#include <cstdint>
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
    // What was told may have been lost. A peer that has left is probably gone, and is told once.
    const bool again = how == Leave::begin && !peer_next_;
    if (told_ != next || again || (how != Leave::look && is_awaited(window))) {
      next_ = next;
    }
    return owes_word();
  }
  // The peer may wait for acknowledgements of what had come when this process began to leave.
  [[nodiscard]] bool is_awaited(const ReceiveWindow& window) const {
    return awaited_to_ && window.una().before(*awaited_to_) && !has_left(window) &&
           silent_at_ != window.top();
  }
  // The peer does not answer, and counts as gone until something comes from it.
  void stop_waiting(const ReceiveWindow& window) { silent_at_ = window.top(); }
  // A packet has come that does not move the window's top.
  void note_sign_of_life() { silent_at_.reset(); }

  // The number that the next acknowledgement is to tell, if it is to tell one.
  [[nodiscard]] bool owes_word() const { return next_.has_value(); }
  [[nodiscard]] std::optional<Psn> take_word() {
    told_ = next_ ? next_ : told_;
    return std::exchange(next_, std::nullopt);
  }

  // The peer ends, and its next packet would have this number. Words may overtake each other.
  void note_leave(Psn next) {
    if (!peer_next_ || peer_next_->before(next)) {
      peer_next_ = next;
    }
  }

 private:
  // The peer has said that it waits for none of what is awaited. A word of long ago says nothing:
  // numbers come round.
  [[nodiscard]] bool has_left(const ReceiveWindow& window) const {
    if (!peer_next_) {
      return false;
    }
    const std::uint32_t ahead = peer_next_->minus(window.una());
    return ahead >= awaited_to_->minus(window.una()) && ahead <= PsnBitmap::kSpan;
  }

  std::optional<Psn> next_;        // to be told
  std::optional<Psn> told_;        // the latest that was
  std::optional<Psn> awaited_to_;  // the window's end when this process began to leave
  std::optional<Psn> peer_next_;   // the highest that the peer has told
  std::optional<Psn> silent_at_;   // the window's end when the peer was found to be silent
};

}  // namespace weft::srd
