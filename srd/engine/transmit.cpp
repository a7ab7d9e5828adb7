// Owns what leaves: whose turn it is, which packet, along which path.
#include <algorithm>
#include <new>

#include "srd/base/lent_memory.hpp"
#include "srd/engine/engine.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/place.hpp"
#include "srd/wire/parse.hpp"

namespace weft::srd {
namespace {

// Forced reorder: how often a request changes its place. Clearly more than half of the messages
// shall come out of order.
constexpr double kDisorder = 0.65;

}  // namespace

bool Engine::next_transmit(TimePoint at, TxPacket& out) {
  const TimePoint now = advance(at);
  if (credit_grants_.next_due() <= now) {
    queue_grants(now);
  }
  while (Peer* const peer = schedule_.take_reply()) {
    if (transmit_reply(now, *peer, out)) {
      return true;
    }
  }
  while (Peer* const peer = schedule_.first_ready()) {
    if (transmit_data(now, *peer, out)) {
      schedule_.count_packet();
      return true;
    }
    // Blocked by window, pacing or a lack of work: an acknowledgement, a timer or a post() brings
    // it back.
    if (mutated(Mutation::wait_for_one) && peer->out->has_work()) [[unlikely]] {
      return false;
    }
    schedule_.end_turn();
  }
  return false;
}

[[gnu::always_inline]] inline bool Engine::transmit_data(TimePoint now, Peer& peer, TxPacket& out) {
  Outbound& o = *peer.out;
  if (credit_request_due(o)) {
    out.path = pick_for_question(now, o);
    emit_credit_request(now, peer, out);
    return true;
  }
  if (o.tail_probe_wanted) {
    o.tail_probe_wanted = false;
    emit_probe(now, peer, pick_for_question(now, o), out);
    return true;
  }
  if (o.muted) {
    return false;
  }
  if (const std::optional<PathId> path =
          o.paths.next_probe() <= now && path_probe_due(o) <= now
              ? o.paths.take_probe(now, o.timer.retransmit_wait(), o.timer.is_silent())
              : std::nullopt) [[unlikely]] {
    ++counters_.path_probes;
    emit_probe(now, peer, *path, out);
    schedule_.arm(peer, o.paths.next_probe());
    return true;
  }
  if (o.paced_until > now) {
    schedule_.arm(peer, o.paced_until);
    return false;
  }
  SendSlot* lost = o.window.oldest_lost();
  while (lost != nullptr && !may_leave_again(*lost)) [[unlikely]] {
      abandon(lost->work, Status::local_protection);
      lost = o.window.oldest_lost();
    }
  const Bytes next = lost != nullptr ? SendWindow::charged(*lost) : cc_tuning_.mtu_wire;
  const Bytes in_flight = o.window.bytes_in_flight();
  if (in_flight != 0 && in_flight + next > o.cc.window()) {
    return false;
  }
  // Who is silent cannot grant: what timed out goes again, as often as the back-off lets it.
  const bool overdue = lost != nullptr && o.timer.is_silent();
  if (!overdue && !has_credit(o)) {
    // The request for it may have been lost when nothing was waiting yet and no timer ran.
    schedule_.arm(peer, now + o.timer.retransmit_wait());
    return false;
  }
  if (lost != nullptr) {
    return retransmit(now, peer, *lost, out);
  }
  if (o.window.span() >= window_span_) {
    return false;
  }
  if (config_.forced_reorder != 0) [[unlikely]] {
    reorder_on_purpose(now, peer);
  }
  const Queue queue = choose_queue(o);
  if (queue == Queue::none) {
    return false;
  }
  const std::uint32_t index = o.queues.front(queue);
  Work& work = works_[index];
  SendSlot& slot = o.window.open();
  slot.work = index;
  if (work.resend != Work::kNoPacket) {
    slot.packet = work.resend;
    work.resend = Work::kNoPacket;
  } else {
    slot.packet = packet_order(work, work.next_packet++);
  }
  if (work.outstanding++ == 0) {
    work.first_psn = static_cast<std::uint16_t>(slot.psn.value());
  }
  if (work.all_sent()) {
    o.queues.remove(works_, index, work);
    if (work.kind == WorkKind::read && work.refusals == 0) {
      ++o.reads_outstanding;
    }
  }
  ++counters_.data_pkts;
  slot.path = static_cast<std::uint8_t>(o.paths.pick(now).value());
  emit(now, peer, slot, out);
  return true;
}

// After silence another path than before: no timer of a path watches over questions, and a policy
// may hold on to a path that is dead.
PathId Engine::pick_for_question(TimePoint now, Outbound& out) {
  out.asked_along =
      out.timer.is_silent() ? out.paths.pick_other_than(now, out.asked_along) : out.paths.pick(now);
  return out.asked_along;
}

// Not if its memory was taken back, or is gone: carriers drop what they cannot read, so that it
// counts as lost.
bool Engine::may_leave_again(const SendSlot& slot) const {
  const Work& work = works_[slot.work];
  if (work.revoked) {
    return false;
  }
  if ((work.kind != WorkKind::send && work.kind != WorkKind::write) || work.phantom) {
    return true;
  }
  const std::uint32_t offset = slot.packet * config_.mtu_payload;
  std::array<std::span<const std::byte>, kMaxSegments> parts{};
  work.slice(offset, std::min(config_.mtu_payload, work.length - offset), parts);
  return std::all_of(parts.begin(), parts.end(), [](const std::span<const std::byte>& part) {
    return lent_is_readable(part.data(), part.size());
  });
}

bool Engine::retransmit(TimePoint now, Peer& peer, SendSlot& slot, TxPacket& out) {
  Outbound& o = *peer.out;
  o.window.take_lost(slot);
  ++slot.attempt;
  if (!mutated(Mutation::retransmit_on_same_path)) {
    slot.path = static_cast<std::uint8_t>(o.paths.pick_other_than(now, PathId{slot.path}).value());
  }
  emit(now, peer, slot, out);
  o.credits.want(slot.length);
  ++counters_.retrans_pkts;
  counters_.retrans_bytes += slot.length;
  return true;
}

// Single packets, reads and bulk take turns, and so do the size classes of bulk: nothing waits
// behind a gigabyte.
[[gnu::always_inline]] inline Queue Engine::choose_queue(Outbound& out) {
  WorkQueues& queues = out.queues;
  if (!queues.has_bulk() && queues.empty(Queue::reads)) {
    out.turn = queues.empty(Queue::singles) ? out.turn : 0;
    return queues.empty(Queue::singles) ? Queue::none : Queue::singles;
  }
  if (mutated(Mutation::starve_bulk) && !queues.empty(Queue::singles)) [[unlikely]] {
    return Queue::singles;
  }
  for (int tries = 0; tries < 3; ++tries) {
    out.turn = static_cast<std::uint8_t>(out.turn == 2 ? 0 : out.turn + 1);
    switch (out.turn) {
      case 0:
        if (!queues.empty(Queue::singles)) {
          return Queue::singles;
        }
        break;
      case 1:
        if (queues.has_bulk()) {
          return queues.next_bulk();
        }
        break;
      default:
        // A refused read already counts.
        if (!queues.empty(Queue::reads) && (out.reads_outstanding < config_.max_reads_per_peer ||
                                            works_[queues.front(Queue::reads)].refusals != 0)) {
          return Queue::reads;
        }
        break;
    }
  }
  return Queue::none;
}

void Engine::emit(TimePoint now, Peer& peer, SendSlot& slot, TxPacket& out) {
  Outbound& o = *peer.out;
  const Work& work = works_[slot.work];
  // Written where it will be read: a copy of what was just stored piece by piece is slow.
  wire::DataHeader& header = *new (out.header.data()) wire::DataHeader{};
  header.common = o.header;
  header.common.attempt = slot.attempt;
  header.common.destination_qpn = work.destination.value();
  header.common.source_qpn = work.source.value();
  header.common.path = slot.path;
  header.psn = slot.psn.value();
  header.back = static_cast<std::uint16_t>(slot.psn.minus(o.window.una()));
  header.send_time = static_cast<std::uint32_t>(nanoseconds(now));
  header.message = work.message;
  header.message_length = work.length;
  header.key = work.key;
  fill_message(work, slot, out, header);
  header.payload_length = slot.length;

  o.window.mark_in_flight(slot, now);
  o.chain.link(slot);
  const Bytes window = o.cc.window();
  const bool last = !o.has_work() && !(config_.ask_sparingly && o.awaits_answer_before(slot.psn));
  const bool tight = window < Bytes{2} * config_.ack_every * cc_tuning_.mtu_wire;
  if (last || tight || slot.attempt != 0) {
    header.common.flags |= wire::kAckRequested;
    o.asked = slot.psn;
  }
  out.to = peer.key.address;
  out.path = PathId{slot.path};
  out.ecn = Ecn::capable_0;
  out.header_size = sizeof header;
  finish(out);

  const Bytes charged = SendWindow::charged(slot);
  if (const Rate rate = o.cc.pacing_rate(); !rate.is_zero()) [[unlikely]] {
    // However slow: a rate that a bad sample made must not stop the packets that would correct it.
    o.paced_until =
        std::min(std::max(o.paced_until, now) + rate.time_for(charged), now + config_.max_rto);
  }
  o.credits.on_sent(slot.length);
  o.last_from = work.source;
  o.last_to = work.destination;
  o.timer.on_sent(now);
  schedule_.arm(peer, now + o.timer.tail_wait());
  tell(Event::Kind::packet_sent, now, peer, slot.psn, out.path, slot.attempt);
}

// What depends on the kind of message: type, placement, payload.
[[gnu::always_inline]] inline void Engine::fill_message(const Work& work, SendSlot& slot,
                                                        TxPacket& out, wire::DataHeader& header) {
  const std::uint32_t offset = slot.packet * config_.mtu_payload;
  std::uint32_t length = std::min(config_.mtu_payload, work.length - offset);
  out.payload = {};
  if (work.has_immediate) {
    header.common.flags |= wire::kImmediate;
    header.immediate = work.immediate;
    // [wire 4.6] Only the packet that completes a message is refused for want of a receive.
    if (work.refusals != 0 && work.packets > 1 && !mutated(Mutation::omit_completes)) [[unlikely]] {
      header.common.flags |= wire::kCompletes;
    }
  }
  if (offset + length == work.length && work.kind != WorkKind::read) {
    header.common.flags |= wire::kLastOfMessage;
  }
  switch (work.kind) {
    case WorkKind::send:
      header.common.type = static_cast<std::uint8_t>(wire::PacketType::send);
      work.slice(offset, length, out.payload);
      break;
    case WorkKind::write:
      header.common.type = static_cast<std::uint8_t>(wire::PacketType::write);
      header.remote_address = work.remote_address + offset;
      if (mutated(Mutation::misplace) && slot.packet == 1) [[unlikely]] {
        header.remote_address = work.remote_address;
      }
      if (work.phantom) {
        out.payload[0] = phantom_payload(length);
      } else {
        work.slice(offset, length, out.payload);
      }
      break;
    case WorkKind::read:
      header.common.type = static_cast<std::uint8_t>(wire::PacketType::read_request);
      header.remote_address = work.remote_address;
      length = 0;
      break;
    case WorkKind::read_response:
      header.common.type = static_cast<std::uint8_t>(wire::PacketType::read_response);
      header.remote_address = offset;
      length = fill_response(work, slot, offset, length, out, header);
      break;
    case WorkKind::none:
      WEFT_CHECK(false);
  }
  slot.length = static_cast<std::uint16_t>(length);
}

void Engine::emit_probe(TimePoint now, Peer& peer, PathId path, TxPacket& out) {
  Outbound& o = *peer.out;
  wire::DataHeader header{};
  header.common = o.header;
  header.common.type = static_cast<std::uint8_t>(wire::PacketType::probe);
  header.common.flags |= wire::kAckRequested;
  header.common.destination_qpn = o.last_to.value();
  header.common.source_qpn = o.last_from.value();
  header.common.path = path.value();
  header.psn = o.window.una().value();
  o.last_probe_time = static_cast<std::uint32_t>(nanoseconds(now));
  header.send_time = o.last_probe_time;
  out.to = peer.key.address;
  out.path = path;
  out.ecn = Ecn::capable_0;
  out.header_size = sizeof header;
  out.payload = {};
  wire::store(out.header.data(), header);
  finish(out);
}

// The last touch of every packet: the checksum and the books.
void Engine::finish(TxPacket& out) {
  if (config_.checksum) {
    wire::seal(std::span(out.header).first(out.header_size), out.payload[0], out.payload[1]);
  }
  ++counters_.tx_pkts;
  counters_.tx_bytes += out.size();
}

// Which packet of a request is sent as its n-th one.
std::uint32_t Engine::packet_order(const Work& work, std::uint32_t n) const {
  constexpr std::uint32_t kBlock = 16;
  const std::uint32_t block = n / kBlock * kBlock;
  if (config_.forced_reorder == 0 || block + kBlock > work.packets) {
    return n;
  }
  const auto shuffle = static_cast<std::uint32_t>(mix64(config_.seed ^ (block + work.message)));
  return block + ((n ^ shuffle) & (kBlock - 1));
}

// The contract allows any order, and applications must be shown so: requests change places and
// wait, and the packets of one request change places (packet_order). Seeded like everything else.
void Engine::reorder_on_purpose(TimePoint now, Peer& peer) {
  Outbound& o = *peer.out;
  for (std::uint16_t tries = 0; tries < config_.forced_reorder && !o.queues.empty(Queue::singles);
       ++tries) {
    const std::uint32_t index = o.queues.front(Queue::singles);
    Work& work = works_[index];
    if (!work.held_back && rng_.chance(kDisorder)) {
      work.held_back = true;
      work.not_before =
          now + Duration{rng_.below(static_cast<std::uint32_t>(nanoseconds(config_.base_rtt)))};
      o.queues.remove(works_, index, work);
      o.queues.push_back(works_, Queue::held_back, index, work);
      schedule_.arm(peer, work.not_before);
    } else if (rng_.chance(kDisorder)) {
      o.queues.remove(works_, index, work);
      o.queues.push_back(works_, Queue::singles, index, work);
    } else {
      break;
    }
  }
}

}  // namespace weft::srd
