// Owns what is known of the incarnation of the process behind a peer. [wire 4.2]
#pragma once

#include <cstdint>

#include "srd/engine/mutation.hpp"
#include "srd/engine/types.hpp"

namespace weft::srd {

// The present life only ever moves forward, and adopt() is the only way to move it. A peer is a
// stranger until a verified packet has told its life, or the program has asked for the peer:
// anybody can send packets that cannot be verified, so a stranger keeps no place in the engine's
// tables.
//
// Besides, a peer may be owed a notice that it speaks to a former life of ours.
class PeerLife {
 public:
  [[nodiscard]] bool known() const { return known_; }
  [[nodiscard]] bool is(Life life) const { return known_ && life == present_; }
  // This life is earlier than the one that we know.
  [[nodiscard]] bool has_ended(Life life) const { return known_ && life.before(present_); }
  // This life is later than the one that we know: the peer has restarted.
  [[nodiscard]] bool is_followed_by(Life life) const { return known_ && present_.before(life); }
  [[nodiscard]] Life present() const { return present_; }
  [[nodiscard]] std::uint32_t restarts() const { return restarts_; }
  // What a header addresses: 0 as long as the life is not known.
  [[nodiscard]] Life addressed() const { return known_ ? present_ : Life{0}; }

  void adopt(Life life) {
    restarts_ += known_ && life != present_ ? 1 : 0;
    present_ = life;
    known_ = true;
    stranger_ = false;
  }

  [[nodiscard]] bool is_stranger() const { return stranger_; }
  void introduce() { stranger_ = false; }

  // [wire 4.9] A header that cannot be verified may not tell a life, but its answer names the one
  // that it spoke of.
  void hint(Life life) { hinted_ = life; }
  [[nodiscard]] Life answered() const { return known_ ? present_ : hinted_; }

  // --- The notice of a stale life. [wire 3.7]
  struct Notice {
    Life refused;    // the life of ours that the peer spoke to
    Life addressee;  // the life that spoke to it: after both ends have restarted, not present()
  };
  void refuse(Life refused, Life source) {
    notice_ = {refused, mutated(Mutation::notice_to_known_life) ? present_ : source};
    refusing_ = true;
  }
  [[nodiscard]] bool owes_notice() const { return refusing_; }
  [[nodiscard]] Notice take_notice() {
    refusing_ = false;
    return notice_;
  }

 private:
  Life present_;
  std::uint32_t restarts_ = 0;
  Life hinted_;
  Notice notice_;
  bool known_ = false;
  bool stranger_ = true;
  bool refusing_ = false;
};

}  // namespace weft::srd
