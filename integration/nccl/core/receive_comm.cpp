// Owns announcing buffers, and telling which message has arrived in which.
//
// A receive takes the next slot and announces its buffers to the sender. Each write that arrives
// carries in its immediate the slot and the place within the group, so writes may come in any
// order; a request is done when all of its buffers were written. An eager message comes without a
// place: it is matched here, by the rule by which its sender matches it with the announcements.
#include "integration/nccl/core/receive_comm.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "srd/base/line_copy.hpp"

namespace weft::nccl {

Outcome ReceiveComm::post(Links& links, std::span<const Buffer> buffers, bool early,
                          Request*& out) {
  out = nullptr;
  if (buffers.empty() || buffers.size() > kMaxGroup) {
    return Outcome::invalid_argument;
  }
  for (const Buffer& buffer : buffers) {
    if (buffer.size > srd::kMaxTransfer ||
        (buffer.size != 0 &&
         (!knows(buffer.region) || !buffer.region->holds(buffer.data, buffer.size)))) {
      return Outcome::invalid_argument;
    }
  }
  // Slots are taken in turn, so a free one behind this one does not help: the sender counts them in
  // the same order.
  Slot& free = slot(next_);
  Request* const request = free.taken && state == State::open ? nullptr : requests_.take(owner);
  if (request == nullptr) {
    return Outcome::ok;
  }
  request->count = static_cast<std::uint8_t>(buffers.size());
  request->sizes = {};
  // A sender that has closed its end may have left messages.
  const bool left = state == State::deserted && kept_ != 0;
  if (state != State::open && !left) {
    refuse(*request);
    out = request;
    return Outcome::ok;
  }
  // Nothing has happened yet that would have to be undone: NCCL asks again.
  if (!left && !announce(links, buffers)) {
    request->state.store(Request::State::free, std::memory_order_relaxed);
    return Outcome::ok;
  }
  free.taken = true;
  free.missing = static_cast<std::uint8_t>((1U << buffers.size()) - 1);
  free.request = early ? kTold : static_cast<std::uint16_t>(requests_.index_of(*request));
  free.sequence = next_++;
  std::copy(buffers.begin(), buffers.end(), free.buffers.begin());
  ++pending;
  ++links.counters().receives;
  if (early) {
    ++links.counters().early;
    end(*request, Outcome::ok);
  }
  out = request;
  for (std::size_t i = 0; kept_ != 0 && state != State::failed && i < buffers.size(); ++i) {
    if (Parcel* const kept = find_parcel(buffers[i].tag)) {
      unpack(links, {free.sequence, static_cast<std::uint8_t>(i)}, *kept);
    }
  }
  if (left) {
    end_all(Outcome::remote_error);  // of a group: what is missing will not come
  }
  return Outcome::ok;
}

bool ReceiveComm::announce(Links& links, std::span<const Buffer> buffers) {
  std::array<std::byte, kMaxControl> message;
  ControlHeader header;
  header.kind = static_cast<std::uint8_t>(ControlKind::announce);
  header.count = static_cast<std::uint8_t>(buffers.size());
  header.to_number = partner_number;
  header.to_nonce = partner_nonce;
  header.from_number = number;
  header.from_nonce = nonce;
  header.sequence = next_;
  header.qkey = links.qkey();
  std::memcpy(message.data(), &header, sizeof header);
  std::size_t length = sizeof header;
  for (const Buffer& buffer : buffers) {
    ControlEntry entry;
    if (buffer.size != 0) {
      entry.address = reinterpret_cast<std::uintptr_t>(buffer.data);
      entry.key = buffer.region->key.value();
    } else {
      // A write without bytes needs a key that exists, too.
      entry.key = links.empty_key().value();
    }
    entry.size = static_cast<std::uint32_t>(buffer.size);
    entry.tag = buffer.tag;
    std::memcpy(message.data() + length, &entry, sizeof entry);
    length += sizeof entry;
  }
  return links.try_send(partner, std::span{message}.first(length)).has_value();
}

bool ReceiveComm::on_eager(Links& links, const Eager& message) {
  Parcel& kept = parcel(message.number);
  if (!usable() || message.number - heard_ >= kEagerWindow || kept.valid) {
    return false;
  }
  if (message.number != heard_) {  // it has overtaken others
    keep(message);
    return true;
  }
  ++heard_;
  if (const std::optional<Place> place = find(message.tag)) {
    put(links, *place, message);
  } else {
    keep(message);
  }
  while (usable() && parcel(heard_).valid && parcel(heard_).number == heard_) {
    Parcel& next = parcel(heard_++);
    if (const std::optional<Place> place = find(next.tag)) {
      unpack(links, *place, next);
    }
  }
  return true;
}

void ReceiveComm::keep(const Eager& message) {
  parcel(message.number) = {.valid = true,
                            .number = message.number,
                            .tag = message.tag,
                            .bytes = {message.bytes.begin(), message.bytes.end()}};
  ++kept_;
}

// The oldest buffer with this tag that no message has filled.
std::optional<ReceiveComm::Place> ReceiveComm::find(std::int64_t tag) {
  for (std::uint32_t sequence = oldest_; sequence != next_; ++sequence) {
    const Slot& one = slot(sequence);
    for (unsigned left = one.taken ? one.missing : 0U; left != 0; left &= left - 1) {
      const auto sub = static_cast<std::uint8_t>(std::countr_zero(left));
      if (one.buffers[sub].tag == tag) {
        return Place{sequence, sub};
      }
    }
  }
  return std::nullopt;
}

// The oldest message with this tag of those that may be delivered.
ReceiveComm::Parcel* ReceiveComm::find_parcel(std::int64_t tag) {
  for (std::uint32_t which = heard_ - kEagerWindow; which != heard_; ++which) {
    Parcel& one = parcel(which);
    if (one.valid && one.number == which && one.tag == tag) {
      return &one;
    }
  }
  return nullptr;
}

void ReceiveComm::unpack(Links& links, Place place, Parcel& kept) {
  const Parcel taken = std::exchange(kept, {});
  --kept_;
  put(links, place, {taken.number, taken.tag, taken.bytes});
}

// The buffer belongs to a region as long as this end is usable: one that goes takes the end with it
// (revoke()). One that does not fit fails both ends: its sender finds out by the announcement.
void ReceiveComm::put(Links& links, Place place, const Eager& message) {
  Slot& one = slot(place.sequence);
  const Buffer& buffer = one.buffers[place.sub];
  if (message.bytes.size() > buffer.size) {
    fail(Outcome::invalid_usage);
    return;
  }
  if (!message.bytes.empty()) {
    copy_lines(buffer.data, message.bytes.data(), message.bytes.size());
  }
  fill(links, one, place.sub, static_cast<std::uint32_t>(message.bytes.size()));
}

// A failed end still takes messages into its slots, without ending requests a second time.
bool ReceiveComm::on_arrival(Links& links, Immediate immediate, std::uint32_t length) {
  Slot& meant = slot(immediate.sequence);
  if (state == State::closed || !meant.taken || !immediate.means(meant.sequence) ||
      (meant.missing & 1U << immediate.sub) == 0 || length > meant.buffers[immediate.sub].size) {
    return false;
  }
  fill(links, meant, immediate.sub, length);
  return true;
}

void ReceiveComm::fill(Links& links, Slot& one, unsigned sub, std::uint32_t length) {
  one.missing = static_cast<std::uint8_t>(one.missing & ~(1U << sub));
  links.counters().received_bytes += length;
  Request* const request = one.request == kTold ? nullptr : &requests_[one.request];
  const bool waits = request != nullptr &&
                     request->state.load(std::memory_order_relaxed) == Request::State::pending;
  if (waits) {
    request->sizes[sub] = length;
  }
  if (one.missing != 0) {
    return;
  }
  links.counters().overtaken += one.sequence != oldest_ ? 1 : 0;
  one.taken = false;
  while (oldest_ != next_ && !slot(oldest_).taken) {
    ++oldest_;
  }
  if (waits) {
    end(*request, Outcome::ok);
  }
}

// Slots stay taken: the sender may still write to what was announced, and the memory is open until
// it is deregistered.
void ReceiveComm::fail(Outcome outcome) {
  // Whatever becomes of a partner that is gone, what it left is here.
  const bool over = state == State::deserted && outcome == Outcome::remote_error;
  if (state == State::failed || state == State::closed || over) {
    return;
  }
  state = State::failed;
  failure = outcome;
  end_pending(outcome);
}

// What came before any buffer for it can still be received.
void ReceiveComm::desert() {
  if (usable()) {
    state = State::deserted;
    end_all(Outcome::remote_error);
  }
}

// No message comes for what was announced.
void ReceiveComm::end_all(Outcome outcome) {
  for (Slot& one : slots_) {
    one.taken = false;
  }
  oldest_ = next_;
  end_pending(outcome);
}

void ReceiveComm::end_pending(Outcome outcome) {
  for (std::size_t i = 0; i < kMaxReceives; ++i) {
    if (requests_[i].state.load(std::memory_order_relaxed) == Request::State::pending) {
      end(requests_[i], outcome);
    }
  }
}

// NCCL has taken back memory that was announced. The sender may write to it at any time and will be
// refused, so the end fails now instead of waiting for that.
void ReceiveComm::revoke(const CommRegion* region) {
  for (const Slot& one : slots_) {
    for (unsigned left = one.taken ? one.missing : 0U; left != 0; left &= left - 1) {
      if (one.buffers[static_cast<std::size_t>(std::countr_zero(left))].region == region) {
        fail(Outcome::invalid_usage);
        return;
      }
    }
  }
}

}  // namespace weft::nccl
