// Owns announcing buffers, and telling which message has arrived in which.
//
// A receive takes the next slot and announces its buffers to the sender. Each write that arrives
// carries in its immediate the slot and the place within the group, so writes may come in any
// order; a request is done when all of its buffers were written.
#include "integration/nccl/core/receive_comm.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

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
  Slot& slot = slots_[next_ % Immediate::kSlots];
  Request* const request = slot.taken && state == State::open ? nullptr : requests_.take(owner);
  if (request == nullptr) {
    return Outcome::ok;
  }
  if (state != State::open) {
    request->count = static_cast<std::uint8_t>(buffers.size());
    request->sizes = {};
    refuse(*request);
    out = request;
    return Outcome::ok;
  }
  // Nothing has happened yet that would have to be undone: NCCL asks again.
  if (!announce(links, buffers)) {
    request->state.store(Request::State::free, std::memory_order_relaxed);
    return Outcome::ok;
  }
  slot = {.taken = true,
          .missing = static_cast<std::uint8_t>((1U << buffers.size()) - 1),
          .request = early ? kTold : static_cast<std::uint16_t>(requests_.index_of(*request)),
          .sequence = next_++};
  request->count = static_cast<std::uint8_t>(buffers.size());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    slot.sizes[i] = static_cast<std::uint32_t>(buffers[i].size);
    slot.regions[i] = buffers[i].region;
    request->sizes[i] = 0;
  }
  ++pending;
  ++links.counters().receives;
  if (early) {
    ++links.counters().early;
    end(*request, Outcome::ok);
  }
  out = request;
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

// A failed end still takes messages into its slots, without ending requests a second time.
bool ReceiveComm::on_arrival(Links& links, Immediate immediate, std::uint32_t length) {
  Slot& slot = slots_[immediate.sequence % Immediate::kSlots];
  const unsigned bit = 1U << immediate.sub;
  if (state == State::closed || !slot.taken || !immediate.means(slot.sequence) ||
      (slot.missing & bit) == 0 || length > slot.sizes[immediate.sub]) {
    return false;
  }
  slot.missing = static_cast<std::uint8_t>(slot.missing & ~bit);
  links.counters().received_bytes += length;
  const bool told = slot.request == kTold;
  if (!told) {
    requests_[slot.request].sizes[immediate.sub] = length;
  }
  if (slot.missing != 0) {
    return true;
  }
  links.counters().overtaken += slot.sequence != oldest_ ? 1 : 0;
  slot.taken = false;
  while (oldest_ != next_ && !slots_[oldest_ % Immediate::kSlots].taken) {
    ++oldest_;
  }
  if (!told && state != State::failed) {
    end(requests_[slot.request], Outcome::ok);
  }
  return true;
}

// Slots stay taken: the sender may still write to what was announced, and the memory is open until
// it is deregistered.
void ReceiveComm::fail(Outcome outcome) {
  if (state == State::failed || state == State::closed) {
    return;
  }
  state = State::failed;
  failure = outcome;
  for (std::size_t i = 0; i < kMaxReceives; ++i) {
    if (requests_[i].state.load(std::memory_order_relaxed) == Request::State::pending) {
      end(requests_[i], outcome);
    }
  }
}

// NCCL has taken back memory that was announced. The sender may write to it at any time and will be
// refused, so the end fails now instead of waiting for that.
void ReceiveComm::revoke(const CommRegion* region) {
  for (const Slot& slot : slots_) {
    for (unsigned left = slot.taken ? slot.missing : 0U; left != 0; left &= left - 1) {
      if (slot.regions[static_cast<std::size_t>(std::countr_zero(left))] == region) {
        fail(Outcome::invalid_usage);
        return;
      }
    }
  }
}

}  // namespace weft::nccl
