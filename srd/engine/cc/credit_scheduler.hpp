// Owns the receiver's side of credits: demands of all senders in, grants in turn and at the rate of
// the link out.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "srd/base/time.hpp"
#include "srd/base/units.hpp"
#include "srd/engine/types.hpp"

namespace weft::srd {

struct CreditTuning {
  Rate line_rate = Rate::gbps(100);  // in bytes of payload, which is what credits count
  // Granted of it. All: what little a burst left in the queue stays there, and no link waits for
  // credits.
  std::uint32_t line_permille = 1000;
  Bytes quantum = 8192;             // of one grant: small for fairness, large for few packets
  std::uint32_t max_peers = 65536;  // demands of peers beyond are ignored
};

// [wire 4.8] Grants only what was asked for, so that what is granted and not yet used stays
// bounded.
class CreditScheduler {
 public:
  struct Grant {
    PeerId peer;
    std::uint32_t cumulative = 0;  // in credits, modulo 2^32
  };

  explicit CreditScheduler(const CreditTuning& tuning);

  // False if the peer is beyond the limit. A repeated or older demand changes nothing.
  bool on_demand(TimePoint now, PeerId peer, std::uint32_t cumulative);
  // A grant that is due, the next sender's turn. Call until there is none.
  [[nodiscard]] std::optional<Grant> next(TimePoint now);
  // When the next grant is due; kNever while no sender wants any.
  [[nodiscard]] TimePoint next_due() const { return turn_ == kNobody ? kNever : due_; }
  // What the peer has been granted so far, to be said again in any acknowledgement.
  [[nodiscard]] std::uint32_t granted(PeerId peer) const;
  // The peer is silent: what it wants and has not been granted yet goes to the others. Its counts
  // stay, so that it is served again as soon as it repeats its demand.
  void withdraw(PeerId peer);
  // The peer is gone or starts a new life: both its counts begin at 0 again.
  void forget(PeerId peer);

 private:
  static constexpr std::uint32_t kNobody = 0xFFFFFFFF;
  // Grants that may leave at once after the caller was late.
  static constexpr int kMaxCatchUp = 4;

  struct Sender {
    std::uint32_t demand = 0;
    std::uint32_t granted = 0;
    std::uint32_t next = kNobody;  // in the ring of senders that want credit; kNobody: not in it
    std::uint32_t previous = kNobody;
  };

  void enter(std::uint32_t index);
  void leave(std::uint32_t index);

  std::vector<Sender> senders_;  // by peer
  std::uint32_t turn_ = kNobody;
  std::uint32_t quantum_;  // in credits
  std::uint32_t max_peers_;
  Duration time_per_quantum_;
  Rate rate_;
  TimePoint due_ = TimePoint::min();
};

}  // namespace weft::srd
