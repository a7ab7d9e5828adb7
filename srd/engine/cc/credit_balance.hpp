// Owns the sender's side of receiver credits: what it may still send, and how much it asks for.
//
// All bytes are asked for, also those that leave before they are granted: these are the overdraft,
// and the grants that come for them make room for the next ones. So a message that fits into the
// overdraft costs no round trip, and the receiver goes on sharing out the whole of its link.
//
// How much a receiver can take unasked is not configured but seen. What it grants in a round trip
// while it is asked for more is this sender's part of its link: if each sender is ahead by that,
// the link has work for exactly the round trip that a grant would take. A receiver that has granted
// nothing yet is trusted with what others have granted lately; and with next to nothing if nobody
// has, because a thousand senders that begin together know no more than one alone. But where the
// network reports what it loses, a message of a few packets that fits into half of the sender's
// share leaves at once: lost, it costs its headers, and held back it costs a round trip.
//
// What was overdrawn and lost was too much: the overdraft shrinks by it, and it leaves again on the
// grants that are under way for it. What was granted and lost is asked for anew.
#pragma once

#include <algorithm>
#include <cstdint>

#include "srd/base/time.hpp"
#include "srd/base/units.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {

// [wire 3.8] Demand and grants travel in these, cumulative, modulo 2^32.
inline constexpr Bytes kBytesPerCredit = wire::kCreditUnit;

// What the receivers of one engine have let their senders overdraw lately, as a smoothed mean with
// the weight of RFC 6298.
class UsualOverdraft {
 public:
  void add(Bytes overdraft) {
    mean_ = known_ ? mean_ - mean_ / 8 + overdraft / 8 : overdraft;
    known_ = true;
  }
  [[nodiscard]] bool known() const { return known_; }
  [[nodiscard]] Bytes get() const { return mean_; }

 private:
  Bytes mean_ = 0;
  bool known_ = false;
};

// [wire 4.8] Counts payload bytes. What is wanted and not spent is what waits to be sent, for the
// first time or again.
class CreditBalance {
 public:
  struct Tuning {
    Bytes packet = 0;  // payload of a full one
    Bytes window = 0;  // what the line carries until the first grant can be there
    Bytes share = 0;   // of the window, as that of all peers that are being sent to
    Duration first_grant{};
    bool losses_are_reported = false;
  };

  CreditBalance() = default;
  CreditBalance(const Tuning& tuning, const UsualOverdraft& usual);

  // So many more bytes wait to be sent.
  void want(Bytes bytes) {
    idle_ = idle_ || !wants_more();
    wanted_ += bytes;
  }
  // Bytes that were wanted will not be sent after all. What was asked for cannot be taken back.
  void give_up(Bytes bytes);

  // One more packet may leave. Packets are whole: rounded to the nearest one.
  [[nodiscard]] bool may_send() const {
    return std::min(spent_ + packet_ / 2, wanted_) <= allowed_ + overdraft();
  }
  // False if no bytes wait to be sent.
  [[nodiscard]] bool wants_more() const { return spent_ < wanted_; }
  void on_sent(Bytes bytes) { spent_ += bytes; }
  // Bytes that have left are lost, and wanted again.
  void on_lost(Bytes bytes);

  // The same, but they never were in the receiver's way: they may leave again at once.
  void on_lost_on_the_way(Bytes bytes) { spent_ -= std::min(spent_, bytes); }

  // Older grants, which arrive late, are ignored. The latest one once more answers a question: it
  // is not the sender's turn yet.
  void on_grant(TimePoint now, std::uint32_t cumulative, UsualOverdraft& usual) {
    const auto step = static_cast<std::int32_t>(
        cumulative - static_cast<std::uint32_t>(allowed_ / kBytesPerCredit));
    if (step > 0) {
      take_grant(now, static_cast<Bytes>(step) * kBytesPerCredit, usual);
    } else if (step == 0 && questioned_) {
      note_refusal(now);
    }
  }

  // What a credit request says now. What was asked for cannot be taken back, and a sender that
  // gives up what it wanted would hold the link for nothing: so no more is asked for than keeps the
  // next request in time.
  [[nodiscard]] std::uint32_t demand() const {
    return static_cast<std::uint32_t>(demanded() / kBytesPerCredit);
  }
  // True if the receiver should hear of a larger demand than the last one it was told. Not while
  // there is enough to go on with, granted or asked for: each packet that is lost is wanted again.
  // But what is less than a packet is not enough, however little the line holds.
  [[nodiscard]] bool should_request() const {
    const Bytes enough = std::min(std::max(ahead() / 8, packet_), kMaxOpen);
    return demanded() > asked_ && asked_ <= spent_ + enough;
  }
  // It was told, and what is the sender's share of its own line now.
  void on_requested(TimePoint now, Bytes share);
  // How many times as long as for an answer it waits for grants at least before it asks again.
  // While the receiver has granted nothing of what it was asked for last, the request may be lost,
  // and nobody will ever grant that: once, and twice as long after each answer that grants nothing.
  [[nodiscard]] int waits_before_question() const { return in_doubt() ? 1 << refusals_ : 1; }
  // It need not ask before this time: the receiver has others to serve, and this sender's turn
  // comes as often as the grants that it has seen. One that is as late again may be lost.
  [[nodiscard]] TimePoint turn_due() const {
    return in_doubt() ? TimePoint::min() : waits_since_ + 2 * Duration{turn_};
  }

  // Bytes that may be sent before they are granted.
  [[nodiscard]] Bytes overdraft() const { return known_ ? overdraft_ : first_overdraft(); }

 private:
  // Shares of the line that are asked for at a time. Chosen: nearly all of them are used up between
  // two requests, so that these are rare, and what is given up costs the others few round trips.
  static constexpr Bytes kSharesAsked = 16;
  // But so many windows at least, so that a sender to many peers need not ask for each packet.
  static constexpr Bytes kWindowsAsked = 2;
  // What may be asked for and not granted yet. Both ends compare counts modulo 2^32, which says
  // which one is later up to half of that.
  static constexpr Bytes kMaxOpen = (Bytes{1} << 30) * kBytesPerCredit;
  // What may leave in any case while nothing is known.
  static constexpr Bytes kFirstPackets = 2;
  // Of its share, what is short enough to leave at once. Chosen: the more, the better for all but
  // those that many begin to send to at the same time.
  static constexpr Bytes kShortPart = 2;
  // Nor more packets: what is cut leaves its headers, and a queue holds few of a thousand senders.
  static constexpr Bytes kShortPackets = 8;
  // Waits do not double more often.
  static constexpr int kMaxRefusals = 8;
  // The longest turn that is believed while none is known, in times that a first grant takes.
  static constexpr int kFirstTurn = 4;
  static constexpr Duration kLongestTurn = std::chrono::seconds{1};  // `turn_` has 32 bits

  // How much is asked for at a time. The receiver cannot know that its sender has others to serve:
  // what it grants beyond the share that the line has for it is its other senders' loss.
  [[nodiscard]] Bytes ahead() const {
    return std::max(kSharesAsked * share_, kWindowsAsked * window_);
  }
  [[nodiscard]] bool in_doubt() const { return heard_ < asked_ && allowed_ >= heard_; }
  void note_refusal(TimePoint now);
  // It has waited for a grant until now, and others were served.
  void note_turn(TimePoint now);
  // The demand, in whole credits.
  [[nodiscard]] Bytes demanded() const {
    const Bytes open = std::min((ahead() / kBytesPerCredit + 1) * kBytesPerCredit, kMaxOpen);
    const Bytes whole = (wanted_ + kBytesPerCredit - 1) / kBytesPerCredit * kBytesPerCredit;
    return std::min(whole, allowed_ + open);
  }
  // While the receiver has not said yet whether it is free. A message that fits into the share
  // would be over before it says so, and a thousand of them at once would all be lost; a longer one
  // soon hears, and loses its share at most. So the risk begins where a message no longer fits.
  [[nodiscard]] Bytes first_overdraft() const {
    const Bytes risk = std::min(risk_, share_);
    const Bytes beyond = wanted_ - std::min(wanted_, risk);
    const Bytes whole = wanted_ <= short_message() ? wanted_ : 0;
    return std::max({std::min(beyond, risk), overdraft_, kFirstPackets * packet_, whole});
  }
  [[nodiscard]] Bytes short_message() const {
    return losses_are_reported_ ? std::min(share_ / kShortPart, kShortPackets * packet_) : 0;
  }
  void take_grant(TimePoint now, Bytes granted, UsualOverdraft& usual);
  void learn(TimePoint now, UsualOverdraft& usual);
  void begin_round(TimePoint at);

  Bytes wanted_ = 0;
  Bytes spent_ = 0;
  Bytes allowed_ = 0;
  Bytes asked_ = 0;
  Bytes heard_ = 0;            // what was asked for when a grant last showed that it was heard
  std::uint8_t refusals_ = 0;  // since the latest request that asked for more
  std::uint32_t turn_ = 0;     // ns: the longest wait for a grant lately
  Bytes overdraft_ = 0;        // not known: the usual one
  Bytes packet_ = 0;
  Bytes window_ = 0;
  bool known_ = false;  // the overdraft: this receiver has shown it
  bool losses_are_reported_ = false;
  bool idle_ = true;         // until what waits now was posted: it has not waited for a grant
  bool questioned_ = false;  // it has asked whether it is its turn
  // Of the round in which grants are counted.
  bool needed_ = false;  // the overdraft: it was used, or there would have been a use for more
  bool lost_ = false;    // something was
  TimePoint round_began_{};
  Bytes round_allowed_ = 0;  // allowed and asked for when it began
  Bytes round_asked_ = 0;
  Bytes share_ = 0;
  Bytes risk_ = 0;           // of a long message while nothing is known of any receiver
  TimePoint waits_since_{};  // for a grant: the latest one, or when it was asked for
  Duration first_grant_{};
};

}  // namespace weft::srd
