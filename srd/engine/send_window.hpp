// Owns the sender's view of one peer's sequence numbers: what is in flight, in which order it left,
// what is lost.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "srd/base/check.hpp"
#include "srd/base/masked_array.hpp"
#include "srd/base/prefetch.hpp"
#include "srd/base/step_count.hpp"
#include "srd/base/time.hpp"
#include "srd/base/units.hpp"
#include "srd/engine/psn_bitmap.hpp"
#include "srd/engine/types.hpp"

namespace weft::srd {

// One sequence number that is not settled yet, or that the window has not moved past. Small: with a
// thousand peers these are most of what does not stay in the cache.
struct alignas(kCacheLine / 2) SendSlot {
  enum class State : std::uint8_t { settled, in_flight, lost, deferred };

  TimePoint sent_at{};  // of the latest transmission; deferred: when to send again
  std::uint32_t work = 0;
  std::uint32_t packet = 0;  // which packet of the work request
  Psn psn;
  std::int16_t path_before = 0;  // plus psn: the packet sent on the same path before; 0: unknown
  std::uint16_t length = 0;      // payload bytes
  std::uint16_t previous = 0;    // neighbours in the list that the state names
  std::uint16_t following = 0;
  std::uint8_t path = 0;
  State state = State::settled;
  std::uint8_t attempt = 0;    // transmissions before the latest
  std::uint8_t overtaken = 0;  // later packets of the same path that have arrived

  [[nodiscard]] Psn psn_before() const {
    return Psn{psn.value() + static_cast<std::uint32_t>(std::int32_t{path_before})};
  }
};
static_assert(sizeof(SendSlot) == kCacheLine / 2 && wire::kMaxPaths - 1 <= 0xFF);

// Packets in flight form a list in order of transmission, lost ones a list in order of discovery.
class SendWindow {
 public:
  explicit SendWindow(Psn first) : una_(first), next_(first) {}

  [[nodiscard]] Psn una() const { return una_; }
  [[nodiscard]] Psn next() const { return next_; }
  [[nodiscard]] bool empty() const { return una_ == next_; }
  [[nodiscard]] std::uint32_t span() const { return next_.minus(una_); }
  [[nodiscard]] bool contains(Psn psn) const { return psn.minus(una_) < span(); }
  [[nodiscard]] Bytes bytes_in_flight() const { return bytes_in_flight_; }
  [[nodiscard]] SendSlot& slot(Psn psn) {
    count_step();
    return slots_[psn.value()];
  }

  // One bit for each of the aligned 64 numbers around `psn`: it is settled, so that a claim about
  // it is no news. Bits of numbers before una() are not kept.
  [[nodiscard]] std::uint64_t settled_word(Psn psn) const { return settled_.word(psn); }

  // The next sequence number, not yet in a list. The caller fills the slot and then calls
  // mark_in_flight().
  [[nodiscard]] SendSlot& open() {
    if (span() == slots_.size()) {
      grow();
    }
    SendSlot& slot = slots_[next_.value()];
    slot = SendSlot{};
    slot.psn = next_;
    ++next_;
    return slot;
  }

  void prefetch_next() const {
    prefetch(this, kCacheLine);
    if (!slots_.empty()) {
      prefetch(&slots_[next_.value()], 2 * kCacheLine);
    }
  }

  void mark_in_flight(SendSlot& slot, TimePoint now) {
    slot.sent_at = now;
    slot.state = SendSlot::State::in_flight;
    slot.overtaken = 0;
    bytes_in_flight_ += charged(slot);
    in_flight_.push_back(*this, index_of(slot));
  }
  // From in flight to lost.
  void mark_lost(SendSlot& slot) {
    leave(slot);
    slot.state = SendSlot::State::lost;
    lost_.push_back(*this, index_of(slot));
  }
  // From in flight to deferred: to be sent again after `first_wait`, which doubles with each
  // transmission. Returns until when.
  TimePoint mark_deferred(SendSlot& slot, TimePoint now, Duration first_wait) {
    leave(slot);
    has_put_off_ = true;
    slot.state = SendSlot::State::deferred;
    slot.sent_at = now + first_wait * (1 << doublings(slot));
    deferred_[doublings(slot)].push_back(*this, index_of(slot));
    ++deferred_count_;
    return slot.sent_at;
  }
  // From deferred to lost, if its time has come; false if nothing was due.
  bool release_deferred(TimePoint now) {
    SendSlot* const slot = first_deferred(*this);
    if (slot == nullptr || slot->sent_at > now) {
      return false;
    }
    mark_lost(*slot);
    return true;
  }
  // Out of every list: the fate of this number is known or of no interest any more.
  void settle(SendSlot& slot) {
    leave(slot);
    slot.state = SendSlot::State::settled;
    if (slot.psn != una_) {
      settled_.set(slot.psn);
      return;
    }
    has_put_off_ = false;
    ++una_;
    if (settled_.test(una_)) {
      una_ = settled_.consume(una_, next_);
    }
  }
  // Out of the lost list, for mark_in_flight().
  void take_lost(SendSlot& slot) { leave(slot); }

  // nullptr if there is none.
  [[nodiscard]] SendSlot* oldest_in_flight() { return front(in_flight_); }
  [[nodiscard]] const SendSlot* oldest_in_flight() const { return front(in_flight_); }
  // What is to be sent again first: what has been lost for longest. But where the peer has put
  // packets off, the oldest number of all if it is lost, because without it the peer may go on
  // putting off everything else.
  [[nodiscard]] SendSlot* first_to_repeat() {
    if (lost_.empty()) {
      return nullptr;
    }
    if (has_put_off_ && slot(una_).state == SendSlot::State::lost) [[unlikely]] {
      return &slot(una_);
    }
    return front(lost_);
  }
  // The one that is due first.
  [[nodiscard]] const SendSlot* oldest_deferred() const { return first_deferred(*this); }
  [[nodiscard]] bool has_lost() const { return !lost_.empty(); }

  // Bytes that a packet counts for in window and rate: what it occupies on the wire beyond the
  // envelope.
  [[nodiscard]] static Bytes charged(const SendSlot& slot) {
    return slot.length + sizeof(wire::DataHeader);
  }

 private:
  static constexpr std::uint16_t kEnd = 0xFFFF;
  struct List {
    std::uint16_t head = kEnd;
    std::uint16_t tail = kEnd;
    [[nodiscard]] bool empty() const { return head == kEnd; }
    void push_back(SendWindow& window, std::uint16_t index) {
      SendSlot& slot = window.slots_[index];
      slot.previous = tail;
      slot.following = kEnd;
      (tail == kEnd ? head : window.slots_[tail].following) = index;
      tail = index;
    }
    void remove(SendWindow& window, std::uint16_t index) {
      const SendSlot& slot = window.slots_[index];
      (slot.previous == kEnd ? head : window.slots_[slot.previous].following) = slot.following;
      (slot.following == kEnd ? tail : window.slots_[slot.following].previous) = slot.previous;
    }
  };

  static constexpr std::uint8_t kMaxDoublings = 6;

  [[nodiscard]] static std::uint8_t doublings(const SendSlot& slot) {
    return std::min(slot.attempt, kMaxDoublings);
  }
  template <class Window>
  [[nodiscard]] static auto first_deferred(Window& window) -> decltype(window.front(window.lost_)) {
    decltype(window.front(window.lost_)) first = nullptr;
    if (window.deferred_count_ == 0) [[likely]] {
      return first;
    }
    for (auto& list : window.deferred_) {
      auto* const slot = window.front(list);
      if (slot != nullptr && (first == nullptr || slot->sent_at < first->sent_at)) {
        first = slot;
      }
    }
    return first;
  }
  [[nodiscard]] std::uint16_t index_of(const SendSlot& slot) const {
    return static_cast<std::uint16_t>(slot.psn.value() & slots_.mask());
  }
  [[nodiscard]] SendSlot* front(const List& list) {
    return list.empty() ? nullptr : &slots_[list.head];
  }
  [[nodiscard]] const SendSlot* front(const List& list) const {
    return list.empty() ? nullptr : &slots_[list.head];
  }
  void leave(SendSlot& slot) {
    switch (slot.state) {
      case SendSlot::State::in_flight:
        bytes_in_flight_ -= charged(slot);
        in_flight_.remove(*this, index_of(slot));
        break;
      case SendSlot::State::lost:
        lost_.remove(*this, index_of(slot));
        break;
      case SendSlot::State::deferred:
        deferred_[doublings(slot)].remove(*this, index_of(slot));
        --deferred_count_;
        break;
      case SendSlot::State::settled:
        break;
    }
  }
  // Doubles the ring. Indices change, so the lists are renumbered through the sequence numbers.
  [[gnu::cold]] void grow();

  Psn una_;
  Psn next_;
  Bytes bytes_in_flight_ = 0;
  bool has_put_off_ = false;  // the peer, since una() was reached
  List in_flight_;
  List lost_;
  std::uint16_t deferred_count_ = 0;
  MaskedArray<SendSlot> slots_;
  // Those of one list wait equally long, so each is in order of what is due.
  std::array<List, kMaxDoublings + 1> deferred_;
  PsnBitmap settled_;
};

}  // namespace weft::srd
