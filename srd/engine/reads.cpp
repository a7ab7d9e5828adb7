// Owns remote reads: the responder's answers and the requester's placement of them.
#include <algorithm>

#include "srd/base/lent_memory.hpp"
#include "srd/engine/engine.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/place.hpp"

namespace weft::srd {
namespace {

constexpr std::uint8_t code_of(Status status) { return static_cast<std::uint8_t>(status); }

}  // namespace

// [wire 4.5] The key is checked now; the answer is work of ours, and takes turns with what we send
// to this peer like any message of its length.
std::uint8_t Engine::accept_read(Peer& peer, const wire::DataHeader& header) {
  const Endpoint* endpoint = endpoints_.find(Qpn{header.common.destination_qpn.value()});
  if (endpoint == nullptr || !endpoint->config.receiving) {
    return code_of(Status::bad_qpn);
  }
  if (!may_access(*endpoint, peer)) {
    return code_of(Status::unknown_peer);
  }
  const std::uint32_t length = header.message_length.value();
  if (length > kMaxTransfer) {
    return code_of(Status::length_error);
  }
  if (length != 0) {
    const MemoryTable::Lookup source =
        memory_.resolve(RegionKey{header.key.value()}, header.remote_address.value(), length,
                        Access::remote_read, endpoint->config.domain);
    if (source.status != Status::ok) {
      return code_of(source.status);
    }
  }
  if (peer.in.reads_served >= config_.max_reads_per_peer) {
    return code_of(Status::responder_busy);
  }
  if (!response_room()) {
    evict_muted_response();
  }
  const std::uint32_t index = response_room() ? works_.allocate() : WorkSlab::kNone;
  if (index == WorkSlab::kNone) {
    return code_of(Status::responder_busy);
  }
  ++peer.in.reads_served;
  Work& work = works_[index];
  work.begin(WorkKind::read_response, peer.id, endpoint->qpn, Qpn{header.common.source_qpn.value()},
             length);
  work.key = header.key.value();
  work.remote_address = header.remote_address.value();
  work.message = header.message.value();
  work.packets = std::max(1U, (length + config_.mtu_payload - 1) / config_.mtu_payload);
  peer.works.add(works_, index, work);
  Outbound& out = outbound(peer);
  out.queues.push_back(works_,
                       mutated(Mutation::reads_behind_bulk)
                           ? Queue::longest_bulk
                           : WorkQueues::queue_for(work.packets, length),
                       index, work);
  out.credits.want(length);
  make_ready(peer);
  return code_of(Status::ok);
}

// Whether the region is still there is asked for each packet, retransmissions included: it may be
// gone since the request was accepted. Then the packet carries the reason instead of bytes. So it
// does when it was lost and its bytes cannot be read: that may be why the carrier did not take it.
std::uint32_t Engine::fill_response(const Work& work, const SendSlot& slot, std::uint32_t offset,
                                    std::uint32_t length, TxPacket& out, wire::DataHeader& header) {
  if (work.length == 0) {
    return 0;
  }
  const Endpoint* endpoint = endpoints_.find(work.source);
  MemoryTable::Lookup source;
  source.status = Status::bad_qpn;
  if (endpoint != nullptr) {
    source = memory_.resolve(RegionKey{work.key}, work.remote_address + offset, length,
                             Access::remote_read, endpoint->config.domain);
  }
  if (source.status == Status::ok && slot.attempt != 0 && !source.phantom &&
      !lent_is_readable(source.data, length)) {
    source.status = Status::access_denied;
  }
  if (source.status != Status::ok) {
    header.common.flags |= wire::kReadFailed;
    header.key = code_of(source.status);
    return 0;
  }
  out.payload[0] =
      source.phantom ? phantom_payload(length) : std::span<const std::byte>{source.data, length};
  counters_.rdma_read_resp_bytes += length;
  return length;
}

// [wire 4.5] An answer to a read that has ended changes no memory. The responder is told once, so
// that it does not send all of it.
void Engine::take_response(TimePoint now, Peer& peer, const wire::DataHeader& header,
                           const RxPacket& packet) {
  if (peer.out) {
    peer.out->timer.on_response(now);
  }
  const std::uint32_t index = reads_by_number_.find(read_key(peer.id, header.message.value()));
  if (index == decltype(reads_by_number_)::kAbsent || works_[index].answered) {
    counters_.drop(DropReason::unknown_read);
    ReceiveWindow& window = peer.in.window;
    if (window.results().empty() && !mutated(Mutation::hide_cancelled_reads)) {
      (void)window.note(Psn{header.psn.value()}, Status::bad_key);
    }
    return;
  }
  Work* const work = &works_[index];
  const std::uint32_t length = header.payload_length.value();
  const std::uint64_t offset = header.remote_address.value();
  if ((header.common.flags & wire::kReadFailed) != 0) {
    if (work->status == Status::ok && !mutated(Mutation::ignore_read_failure)) {
      work->status = static_cast<Status>(header.key.value());
    }
    work->answered = true;
  } else {
    if (offset + length > work->length || offset > work->length) {
      counters_.drop(DropReason::read_out_of_bounds);
      return;
    }
    if (!place(packet, length, work->segments(), static_cast<std::uint32_t>(offset))) [[unlikely]] {
      work->status = Status::local_protection;
      work->answered = true;
      finish_if_done(index, *work);
      return;
    }
    work->received += mutated(Mutation::count_reads_twice) ? 2 * length : length;
    work->answered = work->received >= work->length;
  }
  finish_if_done(index, *work);
}

}  // namespace weft::srd
