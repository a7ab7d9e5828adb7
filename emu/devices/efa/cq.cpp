// Owns writing completion entries and the rules for events.
//
// The library finds a new entry by its phase bit, which changes each time round the ring, so there
// is no index to write for each completion. A program that wants an event stores into the doorbell;
// look() finds that in the next round of progress, and an event is sent for the next completion, or
// at once if the library has not seen the latest ones.
#include "emu/devices/efa/cq.hpp"

#include <atomic>
#include <cstring>

#include "emu/devices/efa/gid.hpp"

namespace weft::devices::efa {
namespace {

Status to_efa(nic::WorkStatus status) {
  using From = nic::WorkStatus;
  switch (status) {
    case From::ok:
      return Status::ok;
    case From::flushed:
      return Status::flushed;
    case From::local_qp_error:
      return Status::qp_error;
    case From::unsupported_operation:
      return Status::unsupported_operation;
    case From::bad_ah:
      return Status::bad_ah;
    case From::bad_local_key:
      return Status::bad_lkey;
    case From::local_length:
      return Status::bad_length;
    case From::remote_bad_key:
      return Status::remote_bad_address;
    case From::remote_bad_qpn:
      return Status::remote_bad_qpn;
    case From::remote_not_ready:
      return Status::remote_rnr;
    case From::remote_length:
      return Status::remote_length;
    case From::remote_restarted:
      return Status::remote_abort;
    case From::remote_feature:
      return Status::remote_feature;
    case From::remote_unknown_peer:
      return Status::unknown_peer;
    case From::unresponsive:
      return Status::unresponsive;
    case From::unreachable:
      return Status::unreachable;
  }
  return Status::remote_status;
}

std::uint8_t operation_bits(nic::Operation operation) {
  switch (operation) {
    case nic::Operation::rdma_read:
      return kOpRead << kCqeOperationShift;
    case nic::Operation::rdma_write:
    case nic::Operation::receive_write_immediate:
      return kOpWrite << kCqeOperationShift;
    case nic::Operation::send:
    case nic::Operation::receive:
    case nic::Operation::invalid:
    case nic::Operation::oversized:
      break;
  }
  return 0;
}

// Fields that the length has no room for follow the library's conventions: see Cqe.
Cqe receive_entry(const nic::WorkCompletion& done) {
  Cqe entry{};
  entry.flags = static_cast<std::uint8_t>(kCqeReceiveQueue | operation_bits(done.operation));
  entry.length = static_cast<std::uint16_t>(done.length);
  entry.ah = done.source_ah;
  entry.source_qpn = static_cast<std::uint16_t>(done.source_qpn);
  if (done.has_immediate) {
    entry.flags |= kCqeHasImmediate;
    entry.immediate = done.immediate;
  }
  if (done.unsolicited) {
    entry.flags |= kCqeUnsolicited;
  }
  if (done.operation == nic::Operation::receive_write_immediate) {
    const auto high = static_cast<std::uint16_t>(done.length >> 16);
    std::memcpy(entry.source_gid.data(), &high, sizeof high);
  } else if (done.source_ah == nic::kUnknownAh) {
    entry.source_gid = gid_of(done.source).bytes;
  }
  return entry;
}

// Of a 64-bit request id the upper parts lie where a receive has its source.
Cqe send_entry(const nic::WorkCompletion& done, bool wide_id) {
  Cqe entry{};
  entry.flags = static_cast<std::uint8_t>(kCqeSendQueue | operation_bits(done.operation));
  entry.length = static_cast<std::uint16_t>(done.length);
  if (wide_id) {
    entry.length = static_cast<std::uint16_t>(done.wr_id >> 16);
    entry.ah = static_cast<std::uint16_t>(done.wr_id >> 32);
    entry.source_qpn = static_cast<std::uint16_t>(done.wr_id >> 48);
  }
  return entry;
}

bool of_receive_queue(nic::Operation operation) {
  return operation == nic::Operation::receive ||
         operation == nic::Operation::receive_write_immediate;
}

}  // namespace

CompletionQueue::CompletionQueue(kernel::QueueMemory& memory, const Shape& shape)
    : memory_(memory),
      shape_(shape),
      ring_(memory.allocate(std::size_t{shape.entries} * shape.entry_size)),
      doorbell_(memory.allocate(sizeof(std::uint32_t))) {
  cqe = shape.entries;
}

CompletionQueue::~CompletionQueue() {
  memory_.release(ring_);
  memory_.release(doorbell_);
}

std::uint32_t CompletionQueue::doorbell_word() const {
  return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(doorbell_.data))
      .load(std::memory_order_acquire);
}

void CompletionQueue::write(Cqe entry) {
  std::byte* const to = ring_.data + std::size_t{slot_} * shape_.entry_size;
  entry.flags |= phase_;
  const std::uint8_t flags = entry.flags;
  // The phase bit tells the reader that the rest is there: everything else first.
  std::memcpy(to, &entry, offsetof(Cqe, flags));
  std::memcpy(to + offsetof(Cqe, qpn),
              reinterpret_cast<const std::byte*>(&entry) + offsetof(Cqe, qpn),
              shape_.entry_size - offsetof(Cqe, qpn));
  std::atomic_ref(*reinterpret_cast<std::uint8_t*>(to + offsetof(Cqe, flags)))
      .store(flags, std::memory_order_release);
  ++produced_;
  if (++slot_ == shape_.entries) {
    slot_ = 0;
    phase_ ^= 1;
  }
  if (armed_) {
    armed_ = false;
    notify();
  }
}

void CompletionQueue::publish(const nic::WorkCompletion& done, bool wide_id) {
  Cqe entry = of_receive_queue(done.operation) ? receive_entry(done) : send_entry(done, wide_id);
  entry.req_id = static_cast<std::uint16_t>(done.wr_id);
  entry.status = static_cast<std::uint8_t>(to_efa(done.status));
  entry.qpn = static_cast<std::uint16_t>(done.qp->number());
  write(entry);
}

void CompletionQueue::look() {
  if (channel == nullptr) {
    return;
  }
  channel->events.flush_backlog();
  const std::uint32_t word = doorbell_word();
  if ((word & kArm) == 0 || word == last_arm_) {
    return;
  }
  last_arm_ = word;
  armed_ = true;
  // Completions that the program has not taken yet cause the event as well.
  if (static_cast<std::uint16_t>(produced_ - word) != 0) {
    armed_ = false;
    notify();
  }
}

}  // namespace weft::devices::efa
