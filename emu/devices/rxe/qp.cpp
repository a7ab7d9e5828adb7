// Owns taking entries out of the application's rings, and giving their places back.
//
// What lies in a ring may be anything (ring.hpp). A send keeps its place until it has completed
// (retire()), a receive until it was copied into the engine's queue, which is one at a time: the
// rest stays in the ring, where the library counts it.
#include "emu/devices/rxe/qp.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft::devices::rxe {
namespace {

// Looks at the ring only when the engine has no receive left, so a program that posts receives pays
// for no command. `late` delays, on purpose, when a receive begins to count (LateReceives).
void move_one(Ring& ring, std::uint32_t max_sges, roce::ReceiveQueue& queue, ReceiveWork& scratch,
              LateReceives& receives, TimePoint now, Duration late) {
  const std::uint32_t waiting = ring.size();
  if (waiting == 0 || (late > Duration::zero() && receives.ripe(waiting, now, late) == 0)) {
    return;
  }
  read_receive(ring.at(0), max_sges, scratch);
  if (queue.push(scratch.wr_id, std::span(scratch.segments).first(scratch.sges))) {
    ring.advance(1);
    receives.take(1);
  }
}

}  // namespace

SharedReceiveQueue::SharedReceiveQueue(const kernel::FileServices& file, std::uint32_t entries,
                                       std::uint32_t sges)
    : file_(file),
      ring_(std::make_unique<Ring>(file.queues, Ring::Ours::consumer, entries,
                                   receive_entry_size(sges))) {
  max_wr = ring_->capacity();
  max_sge = sges;
}

void SharedReceiveQueue::refill(roce::ReceiveQueue& queue, ReceiveWork& scratch, TimePoint now,
                                Duration late) {
  move_one(*ring_, max_sge, queue, scratch, late_, now, late);
  // An event once: the limit is disarmed, and the program sets it again, as the verbs specify.
  if (ring_->size() < limit_) {
    limit_ = 0;
    ++async_events;
    file_.async_events.send(
        {user_handle, static_cast<std::uint32_t>(roce::EventType::srq_limit_reached), 0});
  }
}

std::optional<MapInfo> SharedReceiveQueue::resize(std::uint32_t entries) {
  const std::size_t entry = receive_entry_size(max_sge);
  auto other = std::make_unique<Ring>(file_.queues, Ring::Ours::consumer, entries, entry);
  const std::uint32_t waiting = ring_->size();
  if (!other->valid() || waiting > other->capacity()) {
    return std::nullopt;
  }
  for (std::uint32_t i = 0; i < waiting; ++i) {
    std::memcpy(other->at(i), ring_->at(i), entry);
  }
  other->set_theirs(waiting);
  former_ = std::exchange(ring_, std::move(other));
  max_wr = ring_->capacity();
  return ring_->map_info();
}

QueuePair::QueuePair(const kernel::FileServices& file, const Shape& shape,
                     CompletionQueue& receive_cq, const SharedReceiveQueue* srq)
    : file_(file),
      shape_(shape),
      receive_cq_(receive_cq),
      send_(file.queues, Ring::Ours::consumer, shape.send_entries,
            sizeof(SendWqe) + shape.send.inline_data) {
  if (srq == nullptr) {
    receive_ = std::make_unique<Ring>(file.queues, Ring::Ours::consumer, shape.receive_entries,
                                      receive_entry_size(shape.receive_sges));
  }
}

QpReply QueuePair::describe() const {
  return {receive_ ? receive_->map_info() : MapInfo{}, send_.map_info()};
}

bool QueuePair::next_send(SendWork& work) const {
  if (fetched_ >= send_.size()) {
    return false;
  }
  read_send(send_.at(fetched_), shape_.send, shape_.datagram, work);
  return true;
}

// The engine has finished that many sends since the queue pair was reset.
void QueuePair::retire(std::uint64_t retired) {
  const auto count =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(retired - retired_, fetched_));
  retired_ = retired;
  fetched_ -= count;
  send_.advance(count);
}

void QueuePair::refill(roce::ReceiveQueue& queue, ReceiveWork& scratch, TimePoint now,
                       Duration late) {
  if (receive_) {
    move_one(*receive_, shape_.receive_sges, queue, scratch, late_, now, late);
  }
}

// In the error state receives end as flushed, also those that the engine has never seen.
void QueuePair::flush_receives() {
  for (std::uint32_t left = receive_ ? receive_->size() : 0; left > 0; --left) {
    ReceiveWqe wqe;
    std::memcpy(&wqe, receive_->at(0), sizeof wqe);
    receive_->advance(1);
    Cqe entry{};
    entry.wr_id = wqe.wr_id;
    entry.status = static_cast<std::uint32_t>(roce::WcStatus::flushed);
    entry.opcode = static_cast<std::uint32_t>(roce::WcOpcode::receive);
    entry.qpn = number;
    receive_cq_.publish(entry, /*solicited=*/true);
  }
}

void QueuePair::reset() {
  send_.discard();
  if (receive_) {
    receive_->discard();
  }
  fetched_ = 0;
  retired_ = 0;
  waits_ = false;
  late_.reset();
}

void QueuePair::report(std::uint32_t event) {
  ++async_events;
  file_.async_events.send({user_handle, event, 0});
}

}  // namespace weft::devices::rxe
