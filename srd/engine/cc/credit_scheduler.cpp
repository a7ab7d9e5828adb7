// Owns the ring of senders that wait for credits, and the pace at which it turns.
#include "srd/engine/cc/credit_scheduler.hpp"

#include <algorithm>

#include "srd/engine/cc/credit_balance.hpp"

namespace weft::srd {

CreditScheduler::CreditScheduler(const CreditTuning& tuning)
    : quantum_(static_cast<std::uint32_t>(
          std::clamp<Bytes>(tuning.quantum / kBytesPerCredit, 1, 1U << 20))),
      max_peers_(tuning.max_peers),
      rate_(Rate::bits_per_second(std::max<std::uint64_t>(
          tuning.line_rate.bits_per_second() / 1000 * std::clamp(tuning.line_permille, 1U, 1000U),
          1))) {
  time_per_quantum_ = rate_.time_for(quantum_ * kBytesPerCredit);
}

// Demands are cumulative counts, so one that comes late, or twice, changes nothing.
bool CreditScheduler::on_demand(TimePoint now, PeerId peer, std::uint32_t cumulative) {
  const std::uint32_t index = peer.value();
  if (index >= max_peers_) {
    return false;
  }
  if (index >= senders_.size()) {
    senders_.resize(std::min<std::size_t>(max_peers_, std::size_t{index} * 2 + 16));
  }
  Sender& sender = senders_[index];
  if (static_cast<std::int32_t>(cumulative - sender.demand) <= 0) {
    return true;
  }
  sender.demand = cumulative;
  if (sender.next == kNobody) {
    if (turn_ == kNobody) {
      due_ = std::max(due_, now);  // idle time is not saved up
    }
    enter(index);
  }
  return true;
}

// A grant is due when the link has had time to carry the ones before. Senders take turns; one that
// has all it asked for leaves the ring. Time that was missed is made up for, but not without limit:
// a burst of grants would become a burst of data.
std::optional<CreditScheduler::Grant> CreditScheduler::next(TimePoint now) {
  if (turn_ == kNobody || now < due_) {
    return std::nullopt;
  }
  const std::uint32_t index = turn_;
  Sender& sender = senders_[index];
  const std::uint32_t given = std::min(sender.demand - sender.granted, quantum_);
  sender.granted += given;
  turn_ = sender.next;
  if (sender.granted == sender.demand) {
    leave(index);
  }
  due_ = std::max(due_, now - kMaxCatchUp * time_per_quantum_) +
         rate_.time_for(given * kBytesPerCredit);
  return Grant{PeerId{index}, sender.granted};
}

std::uint32_t CreditScheduler::granted(PeerId peer) const {
  return peer.value() < senders_.size() ? senders_[peer.value()].granted : 0;
}

void CreditScheduler::withdraw(PeerId peer) {
  if (peer.value() < senders_.size() && senders_[peer.value()].next != kNobody) {
    senders_[peer.value()].demand = senders_[peer.value()].granted;
    leave(peer.value());
  }
}

void CreditScheduler::forget(PeerId peer) {
  if (peer.value() >= senders_.size()) {
    return;
  }
  if (senders_[peer.value()].next != kNobody) {
    leave(peer.value());
  }
  senders_[peer.value()] = Sender{};
}

// Last in turn: just before the one whose turn it is.
void CreditScheduler::enter(std::uint32_t index) {
  if (turn_ == kNobody) {
    senders_[index].next = index;
    senders_[index].previous = index;
    turn_ = index;
    return;
  }
  const std::uint32_t last = senders_[turn_].previous;
  senders_[index].next = turn_;
  senders_[index].previous = last;
  senders_[last].next = index;
  senders_[turn_].previous = index;
}

void CreditScheduler::leave(std::uint32_t index) {
  Sender& sender = senders_[index];
  if (sender.next == index) {
    turn_ = kNobody;
  } else {
    senders_[sender.previous].next = sender.next;
    senders_[sender.next].previous = sender.previous;
    turn_ = turn_ == index ? sender.next : turn_;
  }
  sender.next = kNobody;
  sender.previous = kNobody;
}

}  // namespace weft::srd
