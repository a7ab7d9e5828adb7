// Owns the translation of ring entries into the engine's requests. An entry is a union: which
// member counts follows from the opcode. It is copied once before anything is looked at, and counts
// in it (segments, inline bytes) are cut to what the queue pair was made for.
#include "emu/devices/rxe/wqe.hpp"

#include <cstring>

namespace weft::devices::rxe {
namespace {

static_assert(sizeof(roce::Sge) == sizeof(Sge) && offsetof(roce::Sge, length) == 8 &&
              offsetof(roce::Sge, lkey) == 12);

void read_datagram(const Datagram& from, SendWork& work) {
  work.request.remote_qpn = from.remote_qpn;
  work.request.remote_qkey = from.remote_qkey;
  work.ah = from.ah;
  if (from.ah != 0) {
    return;
  }
  roce::AddressVector& to = work.request.address;
  to.destination.bytes = from.address.dgid;
  to.source_index = from.address.sgid_index;
  to.flow_label = from.address.flow_label;
  to.traffic_class = from.address.traffic_class;
  to.hop_limit = from.address.hop_limit;
}

void read_bind(const Bind& from, roce::WorkRequest& to) {
  to.window = from.window;
  to.new_rkey = from.rkey;
  to.bind_lkey = from.lkey;
  to.bind_access = from.access;
  to.bind_address = from.address;
  to.bind_length = from.length;
}

void read_operation(const SendWqe& wqe, SendWork& work) {
  using enum roce::WrOpcode;
  roce::WorkRequest& request = work.request;
  switch (request.opcode) {
    case write:
    case write_immediate:
    case read:
    case atomic_write:
      request.remote_address = wqe.rdma.address;
      request.rkey = wqe.rdma.rkey;
      break;
    case compare_swap:
    case fetch_add:
      request.remote_address = wqe.atomic.address;
      request.rkey = wqe.atomic.rkey;
      request.compare_add = wqe.atomic.compare_add;
      request.swap = wqe.atomic.swap;
      break;
    case bind_window:
      read_bind(wqe.bind, request);
      break;
    // Nothing beside the segments; a key to invalidate is in the field of the immediate data.
    case send:
    case send_immediate:
    case local_invalidate:
    case send_invalidate:
      break;
  }
}

}  // namespace

void read_send(const std::byte* entry, const WqeShape& shape, bool datagram, SendWork& work) {
  SendWqe wqe;
  std::memcpy(&wqe, entry, sizeof wqe);
  constexpr std::uint32_t kKnownFlags =
      roce::kFence | roce::kSignaled | roce::kSolicitedEvent | roce::kInline;
  roce::WorkRequest& request = work.request;
  request = {};
  request.wr_id = wqe.wr_id;
  // What the device does not know becomes kNoOperation: it ends with an error like any bad request,
  // in its turn, instead of being passed over.
  const bool known = wqe.opcode <= static_cast<std::uint32_t>(roce::WrOpcode::send_invalidate) ||
                     wqe.opcode == static_cast<std::uint32_t>(roce::WrOpcode::atomic_write);
  request.opcode = known ? static_cast<roce::WrOpcode>(wqe.opcode) : kNoOperation;
  request.flags = static_cast<std::uint8_t>(wqe.flags & kKnownFlags);
  request.immediate = request.invalidate = wqe.immediate;
  work.ah = 0;
  work.sges = work.inline_size = 0;
  if (datagram) {
    read_datagram(wqe.ud, work);
  } else {
    read_operation(wqe, work);
  }
  // Segments and inline data lie behind the fixed part, in the same place.
  const std::byte* const behind = entry + sizeof wqe;
  if (request.opcode == roce::WrOpcode::atomic_write) {
    // The value lies there whatever the flags say, and every entry has room for it.
    request.flags |= roce::kInline;
    work.inline_size = sizeof(std::uint64_t);
    std::memcpy(work.inline_data.data(), behind, work.inline_size);
  } else if ((request.flags & roce::kInline) != 0) {
    if (wqe.dma.length > shape.inline_data) {
      request.opcode = kNoOperation;
      return;
    }
    work.inline_size = wqe.dma.length;
    std::memcpy(work.inline_data.data(), behind, work.inline_size);
  } else if (wqe.dma.sges > shape.sges) {
    request.opcode = kNoOperation;
  } else {
    work.sges = wqe.dma.sges;
    std::memcpy(work.segments.data(), behind, work.sges * sizeof(Sge));
  }
}

void read_receive(const std::byte* entry, std::uint32_t max_sges, ReceiveWork& work) {
  ReceiveWqe wqe;
  std::memcpy(&wqe, entry, sizeof wqe);
  work.wr_id = wqe.wr_id;
  // A receive with too many segments keeps none, so any message that it takes is too long for it.
  work.sges = wqe.dma.sges <= max_sges ? wqe.dma.sges : 0;
  std::memcpy(work.segments.data(), entry + sizeof wqe, work.sges * sizeof(Sge));
}

}  // namespace weft::devices::rxe
