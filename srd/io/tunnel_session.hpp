// Owns the proof that a datagram comes from the other end of a tunnel, now and for the first time.
// It has no clock and no socket.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>

#include "srd/base/siphash.hpp"
#include "srd/base/time.hpp"
#include "srd/io/join_key.hpp"

namespace weft::srd {

// The two directions are independent. This is the one in which A sends:
//
//   A                                  B
//   ask(question)             ->
//                             <-       answer(question, challenge)   a challenge never used before
//   frame(challenge, 1)       ->
//   frame(challenge, 2)       ->       each number is accepted once
//                             <-       missing                       unknown challenge: ask again
//
// Everything is under a tag that only holders of the key can make. A challenge is good for one life
// of B, so frames recorded earlier are refused, whichever end has restarted since.
// docs/adr/0003-joined-networks-share-a-key.md has the format, the attacks and the alternatives.
class TunnelSession {
 public:
  static constexpr std::size_t kHeaderSize = 40;
  using Header = std::array<std::byte, kHeaderSize>;

  // `seed` must never be the same for two sessions.
  TunnelSession(const JoinKey& key, std::uint64_t seed);

  // Whether frames can be sealed: the other end has given us a challenge.
  [[nodiscard]] bool established() const { return to_ != 0; }
  // What goes before a frame.
  [[nodiscard]] Header seal(std::span<const std::span<const std::byte>> pieces);

  // What a datagram holds: a frame that is proved to be new; a message between the two sessions; or
  // something without a proof.
  enum class Verdict : std::uint8_t { frame, greeting, refused };
  [[nodiscard]] Verdict open(std::span<const std::byte> datagram,
                             std::span<const std::byte>& frame);

  // The caller has a frame to send, and there is no challenge yet.
  void want_challenge() { asking_ = true; }
  // Messages for the other end. Answers go at once, the others not more often than every kInterval:
  // has_greeting() stays true while one waits for that.
  [[nodiscard]] bool has_greeting() const { return asking_ || missing_ || answers_ != 0; }
  [[nodiscard]] bool next_greeting(TimePoint now, Header& greeting);

 private:
  static constexpr Duration kInterval = std::chrono::milliseconds{5};
  static constexpr std::uint64_t kWindow = 4096;
  static constexpr std::size_t kMaxAnswers = 32;

  // Frames under one challenge: each number counts once.
  struct Stream {
    std::uint64_t challenge = 0;
    std::uint64_t latest = 0;
    std::bitset<kWindow> seen;  // of the numbers up to that, each modulo the window
    [[nodiscard]] bool is_new(std::uint64_t number);
  };

  // A number that no session has used before.
  [[nodiscard]] std::uint64_t fresh();
  // A message of the other session, of exactly kHeaderSize bytes.
  [[nodiscard]] Verdict hear(std::span<const std::byte> greeting);
  // Whether a frame that has a good tag is the first with its number. The first under `next_` makes
  // that challenge the current one.
  [[nodiscard]] bool count(std::uint64_t challenge, std::uint64_t number);
  // Writes a message and its tag. Always true.
  [[nodiscard]] bool say(Header& greeting, std::uint64_t kind, std::uint64_t one,
                         std::uint64_t other) const;

  SipHash::Key frame_key_;
  SipHash::Key greeting_key_;
  std::uint64_t seed_;
  std::uint64_t made_ = 0;

  // As sender.
  std::uint64_t question_;  // that a challenge has to answer
  std::uint64_t to_ = 0;    // the challenge that frames go under; 0: none yet
  std::uint64_t sent_ = 0;
  bool asking_ = true;
  TimePoint ask_at_{};

  // As receiver. Frames under the former challenge may still be on their way.
  std::uint64_t next_;  // challenge, until it is used
  Stream current_;
  Stream former_;
  bool missing_ = true;  // frames come, or may come, under a challenge that this life never gave
  TimePoint miss_at_{};
  std::array<std::uint64_t, kMaxAnswers> questions_{};
  std::size_t answers_ = 0;  // to the first so many of them
};

}  // namespace weft::srd
