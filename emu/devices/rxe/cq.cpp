// Owns writing completions and the rules for events.
//
// The device is the ring's producer: it copies an entry and then moves the index. An event is sent
// for the first completion after the application has asked for one; it asks again for the next, so
// that no event is sent for what it is about to poll anyway.
#include "emu/devices/rxe/cq.hpp"

#include <cstring>
#include <utility>

namespace weft::devices::rxe {

CompletionQueue::CompletionQueue(const kernel::FileServices& file, std::uint32_t entries)
    : file_(file),
      ring_(std::make_unique<Ring>(file.queues, Ring::Ours::producer, entries, sizeof(Cqe))) {
  cqe = ring_->capacity();
}

// An armed queue does not become choosier: asking for solicited completions after asking for any
// still means any.
void CompletionQueue::arm(bool solicited_only) {
  if (armed_ != Armed::any) {
    armed_ = solicited_only ? Armed::solicited : Armed::any;
  }
}

// The ring is the application's to empty. A full one loses the completion, as hardware does.
void CompletionQueue::publish(const Cqe& entry, bool solicited) {
  if (ring_->size() == ring_->capacity()) {
    if (!overrun_) {
      overrun_ = true;
      ++async_events;
      file_.async_events.send(
          {user_handle, static_cast<std::uint32_t>(kernel::abi::AsyncEvent::cq_error), 0});
    }
    return;
  }
  std::memcpy(ring_->at(0), &entry, sizeof entry);
  ring_->advance(1);
  if (channel != nullptr && (armed_ == Armed::any || (armed_ == Armed::solicited && solicited))) {
    armed_ = Armed::no;
    notify();
  }
}

bool CompletionQueue::resize(std::uint32_t entries) {
  auto larger = std::make_unique<Ring>(file_.queues, Ring::Ours::producer, entries, sizeof(Cqe));
  const std::uint32_t waiting = ring_->size();
  if (!larger->valid() || waiting > larger->capacity()) {
    // The waiting entries lie just before our index; they move to the beginning of the new ring.
    return false;
  }
  for (std::uint32_t i = 0; i < waiting; ++i) {
    std::memcpy(larger->at(i), ring_->at(i - waiting), sizeof(Cqe));
  }
  larger->advance(waiting);
  former_ = std::exchange(ring_, std::move(larger));
  cqe = ring_->capacity();
  return true;
}

}  // namespace weft::devices::rxe
