// Owns remote reads: the responder's answers and the requester's placement of them.
#include <algorithm>

#include "srd/base/lent_memory.hpp"
#include "srd/engine/delivery.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/place.hpp"

namespace weft::srd {
namespace {

constexpr std::uint8_t code_of(Status status) { return static_cast<std::uint8_t>(status); }

}  // namespace

// [wire 4.5] The key is checked now, and for each packet of the answer again (fill_response()). The
// answer is work of ours, and takes turns with what we send to this peer like any message of its
// length.
std::uint8_t Delivery::accept_read(Peer& peer, const wire::DataHeader& header) {
  const Endpoint* endpoint = parts_.endpoints.find(Qpn{header.common.destination_qpn.value()});
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
        parts_.memory.resolve(RegionKey{header.key.value()}, header.remote_address.value(), length,
                              Access::remote_read, endpoint->config.domain);
    if (source.status != Status::ok) {
      return code_of(source.status);
    }
  }
  if (peer.works.responses() >= parts_.config.max_reads_per_peer) {
    return code_of(Status::responder_busy);
  }
  const auto [index, begun] = parts_.works.begin_response(
      peer, endpoint->qpn, Qpn{header.common.source_qpn.value()}, length);
  if (begun == nullptr) {
    return code_of(Status::responder_busy);
  }
  Work& work = *begun;
  work.key = header.key.value();
  work.remote_address = header.remote_address.value();
  work.message = header.message.value();
  work.packets = std::max(1U, (length + parts_.config.mtu_payload - 1) / parts_.config.mtu_payload);
  parts_.sender(peer).enqueue_response(index, work);
  return code_of(Status::ok);
}

// [wire 4.5] An answer to a read that has ended changes no memory. The responder is told once, in
// the form of a refusal, so that it does not send all the rest.
void Delivery::take_response(TimePoint now, Peer& peer, const wire::DataHeader& header,
                             const RxPacket& packet) {
  if (peer.sender) {
    peer.sender->on_response(now);
  }
  const std::uint32_t index = parts_.works.find_read(peer.id, header.message.value());
  if (index == WorkTable::kNoRead || parts_.works[index].answered) {
    parts_.counters.drop(DropReason::unknown_read);
    ReceiveWindow& window = peer.receiver.window();
    if (window.results().empty() && !mutated(Mutation::hide_cancelled_reads)) {
      (void)window.note(Psn{header.psn.value()}, Status::bad_key);
    }
    return;
  }
  Work* const work = &parts_.works[index];
  const std::uint32_t length = header.payload_length.value();
  const std::uint64_t offset = header.remote_address.value();
  if ((header.common.flags & wire::kReadFailed) != 0) {
    if (work->status == Status::ok && !mutated(Mutation::ignore_read_failure)) {
      work->status = static_cast<Status>(header.key.value());
    }
    work->answered = true;
  } else {
    if (offset + length > work->length || offset > work->length) {
      parts_.counters.drop(DropReason::read_out_of_bounds);
      return;
    }
    if (!place(packet, length, work->segments(), static_cast<std::uint32_t>(offset))) [[unlikely]] {
      work->status = Status::local_protection;
      work->answered = true;
      parts_.works.finish_if_done(index, *work);
      return;
    }
    work->received += mutated(Mutation::count_reads_twice) ? 2 * length : length;
    work->answered = work->received >= work->length;
  }
  parts_.works.finish_if_done(index, *work);
}

}  // namespace weft::srd
