// Owns learning whether a program waits for its peers by looking at its own memory.
#pragma once

#include <algorithm>

namespace weft::srd {

// A program that waits in our calls finds what arrives by polling. A program that reads a byte of
// its own memory finds it after the background thread has placed it there, and its next call is a
// post, not a poll. After kEvidence such rounds in a row it pays to stay in the post for a moment
// and receive the answer there (linger), and to hand over to the sleepers on return.
class SpinRule {
 public:
  // The background thread has placed a peer's data in the program's memory.
  void placed_by_watcher() { unseen_ = true; }
  // The program's own poll has. Many of these: the program polls after all.
  void placed_by_poll() {
    if (spins_ && ++found_by_polls_ >= kPollsThatFind) {
      *this = {};
    }
  }
  // The program's next call polls, ...
  void polls() {
    if (unseen_) [[unlikely]] {
      unseen_ = false;
      evidence_ = 0;
    }
  }
  // It has found the completion of a receive in a queue: it knows of this round's data by that,
  // whoever placed them, and the round is no evidence. If nearly all its rounds are of that kind,
  // the rule was wrong about it; without this it would be lingered for ever, since its polls find
  // their queues full.
  void takes_receive() {
    unseen_ = false;
    posts_between_ = 0;
    if (spins_ && ++taken_ >= kPollsThatFind) {
      *this = {};
    }
  }
  // ... or posts. True: linger.
  [[nodiscard]] bool posts() {
    if (++posts_between_ > kMaxPostsBetween) {
      taken_ = 0;
      posts_between_ = 0;
    }
    if (unseen_) [[unlikely]] {
      unseen_ = false;
      found_by_polls_ = 0;
      if (++evidence_ >= needed_) {
        evidence_ = 0;
        spins_ = true;
        lingers_ = true;
      }
    }
    return lingers_;
  }
  // The end of a linger. One during which nothing arrives costs time: after kMaxInVain of those in
  // a row, twice as much evidence is needed before the next attempt.
  void lingered(bool in_vain) {
    unseen_ = false;
    found_by_polls_ = 0;
    if (!in_vain) {
      vain_ = 0;
      needed_ = kEvidence;
    } else if (++vain_ >= kMaxInVain) {
      vain_ = 0;
      evidence_ = 0;
      lingers_ = false;
      needed_ = std::min(2 * needed_, kMaxEvidence);
    }
  }
  [[nodiscard]] bool unseen() const { return unseen_; }
  [[nodiscard]] bool spins() const { return spins_; }

 private:
  static constexpr int kEvidence = 3;
  static constexpr int kMaxEvidence = 192;
  static constexpr int kMaxInVain = 4;
  static constexpr int kPollsThatFind = 16;
  // Between two receives: an answer, and something of its own. With more it is the writes of its
  // peers, and not their messages, that most rounds wait for.
  static constexpr int kMaxPostsBetween = 2;

  bool unseen_ = false;
  bool spins_ = false;
  bool lingers_ = false;
  int evidence_ = 0;
  int needed_ = kEvidence;
  int vain_ = 0;
  int found_by_polls_ = 0;
  int taken_ = 0;
  int posts_between_ = 0;
};

}  // namespace weft::srd
