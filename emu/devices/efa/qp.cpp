// Owns reading work out of rings that the application may scribble on at any time: each entry is
// copied once, and nothing in it is believed.
//
// The library rings a doorbell with a count of all entries so far, modulo 2^16; what is between the
// count taken last and this one is new. Work that the NIC has no room for stays in the ring, which
// is the program's back-pressure.
#include "emu/devices/efa/qp.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace weft::devices::efa {
namespace {

std::uint32_t& word(const kernel::QueueRegion& region) {
  return *reinterpret_cast<std::uint32_t*>(region.data);
}

template <class T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// A key has 24 bits. The bits above them in a local segment are the library's, and are masked away.
nic::Sge to_sge(const WireSge& from) {
  return nic::Sge{from.address(), from.length, from.key & kKeyMask};
}

}  // namespace

QueuePair::QueuePair(nic::Nic& nic, nic::DatagramQp& qp, kernel::QueueMemory& memory,
                     const Shape& shape, CompletionQueue& send_cq, CompletionQueue& recv_cq)
    : nic_(nic), qp_(qp), memory_(memory), shape_(shape), send_cq_(send_cq), recv_cq_(recv_cq) {
  number = qp.number();
  if (shape.sq_entries > 0) {
    // Ring and doorbell are mapped by separate calls of mmap(), under separate keys: the doorbell
    // needs a page of its own, which DoorbellTrap can write-protect.
    sq_ = memory.allocate(std::size_t{shape.sq_entries} * shape.wqe_size);
    sq_doorbell_ = memory.allocate(sizeof(std::uint32_t));
    send_doorbell = sq_doorbell_;
  }
  if (shape.rq_descriptors > 0) {
    rq_ = memory.allocate(std::size_t{shape.rq_descriptors} * sizeof(ReceiveDescriptor));
    rq_doorbell_ = memory.allocate(sizeof(std::uint32_t));
  }
}

QueuePair::~QueuePair() {
  nic_.destroy_qp(qp_);
  for (const kernel::QueueRegion& region : {sq_, rq_, sq_doorbell_, rq_doorbell_}) {
    memory_.release(region);
  }
}

bool QueuePair::valid() const {
  return (shape_.sq_entries == 0 || (sq_.data != nullptr && sq_doorbell_.data != nullptr)) &&
         (shape_.rq_descriptors == 0 || (rq_.data != nullptr && rq_doorbell_.data != nullptr));
}

void QueuePair::describe(QpReply& reply) const {
  reply.rq_key = rq_.key;
  reply.rq_size = rq_.size;
  reply.rq_doorbell_key = rq_doorbell_.key;
  reply.sq_doorbell_key = sq_doorbell_.key;
  reply.sq_key = sq_.key;
}

// How many entries the doorbell announces beyond those taken; more than the ring holds is nonsense.
std::uint16_t QueuePair::pending(const kernel::QueueRegion& doorbell, std::uint16_t taken) const {
  const std::uint32_t produced = std::atomic_ref(word(doorbell)).load(std::memory_order_acquire);
  return static_cast<std::uint16_t>(static_cast<std::uint16_t>(produced) - taken);
}

// What cannot be becomes work that fails when its turn comes, with the completion that a device
// would give. `wqe` is our own copy; inline data points into it.
nic::SendWork QueuePair::parse(std::span<const std::byte> wqe) const {
  const auto head = load<WqeHead>(wqe, 0);
  nic::SendWork work;
  work.wr_id = head.req_id;
  if (shape_.request_id_64) {
    for (std::size_t i = 0; i < head.req_id_high.size(); ++i) {
      work.wr_id |= std::uint64_t{head.req_id_high[i]} << (16 * (i + 1));
    }
  }
  work.ah = head.ah;
  work.destination = head.destination_qpn;
  work.qkey = head.qkey;
  if ((head.ctrl1 & kHasImmediate) != 0) {
    work.immediate = head.immediate;
  }
  std::size_t local = sizeof(WqeHead);
  std::size_t most = nic::kMaxSges;
  switch (head.ctrl1 & kOperationMask) {
    case kOpSend:
      work.operation = nic::Operation::send;
      break;
    // One-sided: the remote segment comes first, and there is room for one local segment behind it.
    case kOpRead:
    case kOpWrite: {
      work.operation = (head.ctrl1 & kOperationMask) == kOpRead ? nic::Operation::rdma_read
                                                                : nic::Operation::rdma_write;
      const auto remote = load<WireSge>(wqe, local);
      work.remote_address = remote.address();
      work.remote_key = remote.key;
      local += sizeof(WireSge);
      most = 1;
      break;
    }
    default:
      work.operation = nic::Operation::invalid;
      return work;
  }
  if ((head.ctrl1 & kInline) != 0) {
    const std::size_t room = std::min(wqe.size() - local, nic::kMaxInline);
    if (head.length > room) {
      work.operation = nic::Operation::oversized;
      return work;
    }
    work.inline_data = wqe.subspan(local, head.length);
    return work;
  }
  if (head.length > most) {
    work.operation = nic::Operation::oversized;
    return work;
  }
  work.sge_count = static_cast<std::uint8_t>(head.length);
  for (std::size_t i = 0; i < work.sge_count; ++i) {
    work.sges[i] = to_sge(load<WireSge>(wqe, local + i * sizeof(WireSge)));
  }
  return work;
}

// In other states the work stays in the ring, as a device leaves it there.
bool QueuePair::fetch_sends() {
  if (shape_.sq_entries == 0) {
    return true;
  }
  const nic::QpState state = qp_.state();
  if (state != nic::QpState::rts && state != nic::QpState::error) {
    return true;
  }
  const std::uint16_t waiting = pending(sq_doorbell_, sq_taken_);
  // A correct library never posts more than the ring holds. Nothing in such a ring can be trusted
  // to be the work that was meant, so the queue pair fails instead of guessing.
  if (waiting > shape_.sq_entries) {
    return false;
  }
  std::array<std::byte, kWideWqeSize> copy;
  const std::span wqe = std::span<std::byte>(copy).first(shape_.wqe_size);
  for (std::uint16_t i = 0; i < waiting; ++i) {
    const std::uint32_t slot = sq_taken_ & (shape_.sq_entries - 1);
    std::memcpy(wqe.data(), sq_.data + std::size_t{slot} * shape_.wqe_size, wqe.size());
    if (!nic_.post_send(qp_, parse(wqe))) {
      break;  // stays in the ring until there is room
    }
    ++sq_taken_;
  }
  return true;
}

// A chain must begin with the first flag, have it nowhere else, and end within what the doorbell
// announced: a library rings after the last descriptor of a chain.
std::uint16_t QueuePair::gather(std::uint16_t available, nic::ReceiveWork& work) const {
  for (std::uint16_t i = 0; i < available; ++i) {
    const std::uint32_t slot =
        static_cast<std::uint16_t>(rq_taken_ + i) & (shape_.rq_descriptors - 1);
    ReceiveDescriptor descriptor;
    std::memcpy(&descriptor, rq_.data + std::size_t{slot} * sizeof descriptor, sizeof descriptor);
    const bool first = (descriptor.key_and_flags & kFirstDescriptor) != 0;
    if (first != (i == 0) || i >= nic::kMaxReceiveSges) {
      return 0;
    }
    if (first) {
      work.wr_id = descriptor.req_id;
    }
    work.sges[i] = nic::Sge{std::uint64_t{descriptor.address_high} << 32 | descriptor.address_low,
                            descriptor.length, descriptor.key_and_flags & kKeyMask};
    work.sge_count = static_cast<std::uint8_t>(i + 1);
    if ((descriptor.key_and_flags & kLastDescriptor) != 0) {
      return static_cast<std::uint16_t>(i + 1);
    }
  }
  return 0;
}

bool QueuePair::fetch_receives(TimePoint now, Duration late) {
  if (shape_.rq_descriptors == 0 || qp_.state() == nic::QpState::reset) {
    return true;
  }
  std::uint16_t waiting = pending(rq_doorbell_, rq_taken_);
  if (waiting > shape_.rq_descriptors) {
    return false;
  }
  if (late > Duration::zero()) {
    waiting = static_cast<std::uint16_t>(late_.ripe(waiting, now, late));
  }
  while (waiting > 0) {
    nic::ReceiveWork work;
    const std::uint16_t used = gather(waiting, work);
    if (used == 0) {
      return false;
    }
    if (!nic_.post_receive(qp_, work)) {
      break;
    }
    rq_taken_ = static_cast<std::uint16_t>(rq_taken_ + used);
    late_.take(used);
    waiting = static_cast<std::uint16_t>(waiting - used);
  }
  return true;
}

// The doorbells are zeroed for the library, too: its next store counts from zero again, and until
// then pending() must find nothing.
void QueuePair::reset() {
  sq_taken_ = 0;
  rq_taken_ = 0;
  late_.reset();
  for (const kernel::QueueRegion& doorbell : {sq_doorbell_, rq_doorbell_}) {
    if (doorbell.data != nullptr) {
      std::atomic_ref(word(doorbell)).store(0, std::memory_order_relaxed);
    }
  }
}

void QueuePair::publish(const nic::WorkCompletion& done) {
  const bool receive = done.operation == nic::Operation::receive ||
                       done.operation == nic::Operation::receive_write_immediate;
  (receive ? recv_cq_ : send_cq_).publish(done, shape_.request_id_64);
  count(receive                                        ? kernel::kCountReceives
        : done.operation == nic::Operation::rdma_read  ? kernel::kCountReads
        : done.operation == nic::Operation::rdma_write ? kernel::kCountWrites
                                                       : kernel::kCountSends,
        done.status == nic::WorkStatus::ok);
}

}  // namespace weft::devices::efa
