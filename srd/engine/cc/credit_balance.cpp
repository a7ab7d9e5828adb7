// Owns what moves the overdraft of a sender: what the receiver grants in a round trip, and losses.
#include "srd/engine/cc/credit_balance.hpp"

namespace weft::srd {

CreditBalance::CreditBalance(const Tuning& tuning, const UsualOverdraft& usual)
    : overdraft_(std::min(usual.get(), tuning.share)),
      packet_(tuning.packet),
      window_(tuning.window),
      losses_are_reported_(tuning.losses_are_reported),
      share_(tuning.share),
      risk_(usual.known() ? 0 : tuning.share),
      first_grant_(tuning.first_grant) {}

// First what has not been asked for: that need not be granted for nothing.
void CreditBalance::give_up(Bytes bytes) {
  const Bytes unasked = wanted_ - std::min(wanted_, std::max(asked_, spent_));
  const Bytes unwanted = std::min(bytes, unasked);
  wanted_ -= unwanted;
  spent_ += bytes - unwanted;
}

void CreditBalance::on_lost(Bytes bytes) {
  lost_ = true;
  const Bytes overdrawn = std::min(spent_ - std::min(spent_, allowed_), bytes);
  if (overdrawn != 0) {
    const Bytes before = overdraft();
    overdraft_ = before - std::min(before, overdrawn);
    known_ = true;
  }
  spent_ -= overdrawn;
  wanted_ += bytes - overdrawn;
}

void CreditBalance::on_requested(TimePoint now, Bytes share) {
  share_ = share;
  const bool begins = asked_ <= allowed_;
  const bool repeated = !should_request();
  // A wait begins with the first request, and with each one while none may have been heard. It goes
  // on when more is asked for: the turn is the sender's, and not the message's.
  if (begins || idle_ || (repeated && in_doubt())) {
    waits_since_ = now;
    idle_ = false;
  }
  questioned_ = repeated;
  refusals_ = repeated ? refusals_ : 0;
  asked_ = std::max(asked_, demanded());
  if (begins) {
    begin_round(now + first_grant_);
  }
}

// A question was answered, and nothing granted. Only answers count: how long silence is waited for
// is the timer's affair, and both together would wait for ever after a short outage.
void CreditBalance::note_refusal(TimePoint now) {
  questioned_ = false;
  if (in_doubt()) {
    refusals_ = static_cast<std::uint8_t>(std::min(refusals_ + 1, kMaxRefusals));
  } else {
    note_turn(now);
  }
}

// At most twice the turn that was known: a sender that has slept, or was cut off, has not waited
// for its turn all that time.
void CreditBalance::note_turn(TimePoint now) {
  if (idle_) {
    return;
  }
  const Duration most = std::max(2 * Duration{turn_}, kFirstTurn * first_grant_);
  const auto waited = static_cast<std::uint32_t>(
      std::clamp(now - waits_since_, Duration::zero(), std::min(most, kLongestTurn)).count());
  turn_ = std::max(waited, turn_ - turn_ / 8);
}

void CreditBalance::begin_round(TimePoint at) {
  round_began_ = at;
  round_allowed_ = allowed_;
  round_asked_ = asked_;
  needed_ = false;
  lost_ = false;
}

void CreditBalance::take_grant(TimePoint now, Bytes granted, UsualOverdraft& usual) {
  needed_ = needed_ || spent_ > allowed_ || (wants_more() && !may_send());
  note_turn(now);
  waits_since_ = now;
  idle_ = false;
  questioned_ = false;
  allowed_ += granted;
  if (allowed_ > heard_) {
    heard_ = asked_;
    refusals_ = 0;
  }
  if (now - round_began_ >= first_grant_ || allowed_ >= asked_) {
    learn(now, usual);
    begin_round(now);
  }
}

// A round is over: it has lasted as long as a first grant takes, or all has been granted before.
// If what was asked for when it began has been granted by now, the receiver could have granted more
// than it did, and the overdraft is at least that. It grows only if it was in the way, and nothing
// was lost with the present one.
void CreditBalance::learn(TimePoint now, UsualOverdraft& usual) {
  double seen = static_cast<double>(allowed_ - round_allowed_);
  const Duration lasted = now - round_began_;
  if (lasted > first_grant_) {
    seen *= static_cast<double>(first_grant_.count()) / static_cast<double>(lasted.count());
  }
  const Bytes granted = std::min(static_cast<Bytes>(seen), share_);
  const bool all = allowed_ >= round_asked_;
  const bool grows = granted > overdraft();
  overdraft_ = overdraft();
  if (grows ? needed_ && !lost_ : !all) {
    overdraft_ = granted;
    usual.add(overdraft_);
  }
  known_ = true;
}

}  // namespace weft::srd
