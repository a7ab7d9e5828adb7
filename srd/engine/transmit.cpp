// Owns what leaves: whose turn it is, which packet of that peer is next, along which path, and what
// its header says.
#include <algorithm>
#include <new>

#include "srd/base/lent_memory.hpp"
#include "srd/engine/engine.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/place.hpp"
#include "srd/wire/parse.hpp"

namespace weft::srd {
namespace {

// The probability that forced reorder changes a request's place: high enough that clearly more than
// half of the messages come out of order.
constexpr double kDisorder = 0.65;

// The attempt from which on a packet takes the path that is surest. One copy may have been lost by
// chance; two were lost to paths of which most are dead.
constexpr std::uint8_t kSurestFrom = 2;

}  // namespace

[[gnu::hot]] bool Engine::next_transmit(TimePoint at, TxPacket& out) {
  const TimePoint now = advance(at);
  if (parts_.grants.next_due() <= now) {
    queue_grants(now);
  }
  while (Peer* const peer = parts_.schedule.take_reply()) {
    if (transmit_reply(now, *peer, out)) {
      return true;
    }
  }
  while (Peer* const peer = parts_.schedule.first_ready()) {
    if (peer->sender->transmit_inline(now, out)) {
      parts_.schedule.count_packet();
      return true;
    }
    if (mutated(Mutation::wait_for_one) && peer->sender->has_work()) [[unlikely]] {
      return false;
    }
    // Blocked by window, pacing or a lack of work: an acknowledgement, a timer or a post() brings
    // it back.
    parts_.schedule.end_turn();
  }
  return false;
}

bool Sender::transmit(TimePoint now, TxPacket& out) { return transmit_inline(now, out); }

[[gnu::always_inline]] inline bool Sender::transmit_inline(TimePoint now, TxPacket& out) {
  if (transmit_question(now, out)) {
    return true;
  }
  if (muted_) {
    return false;
  }
  if (paths_.next_probe() <= now && transmit_path_probe(now, out)) [[unlikely]] {
    return true;
  }
  if (paced_until_ > now && paced_until_ - parts_.config.pace_step > now) {
    parts_.schedule.arm(peer_, paced_until_ - parts_.config.pace_step);
    pace_holds_back_ = true;
    return false;
  }
  if (transmit_data(now, out)) {
    return true;
  }
  pace_holds_back_ = false;
  return false;
}

// What window and credit let go.
[[gnu::always_inline]] inline bool Sender::transmit_data(TimePoint now, TxPacket& out) {
  SendSlot* const lost = next_lost();
  const Bytes next = lost != nullptr ? SendWindow::charged(*lost) : parts_.cc_tuning.mtu_wire;
  const Bytes in_flight = window_.bytes_in_flight();
  if (in_flight != 0 && in_flight + next > cc_.window()) {
    return false;
  }
  // A silent peer cannot grant: what timed out goes again, as often as the back-off lets it.
  const bool overdue = lost != nullptr && timer_.is_silent();
  if (!overdue && !has_credit()) {
    // The request for it may have been lost when nothing was waiting yet and no timer ran.
    parts_.schedule.arm(peer_, now + timer_.retransmit_wait());
    return false;
  }
  return lost != nullptr ? retransmit(now, *lost, out) : transmit_next(now, out);
}

// Requests for credits, questions of distance and probes of a tail: neither window nor pacing holds
// them back.
[[gnu::always_inline]] inline bool Sender::transmit_question(TimePoint now, TxPacket& out) {
  if (credit_request_due()) {
    emit_credit_request(now, out);
    return true;
  }
  if (probes_wanted_ != 0) {
    --probes_wanted_;
    emit_probe(now, pick_for_question(now), out);
    return true;
  }
  return false;
}

bool Sender::transmit_path_probe(TimePoint now, TxPacket& out) {
  const bool silent = timer_.is_silent() || !timer_.rtt().measured();  // or never heard
  const std::optional<PathId> path = path_probe_due() <= now
                                         ? paths_.take_probe(now, timer_.retransmit_wait(), silent)
                                         : std::nullopt;
  if (!path) {
    return false;
  }
  ++parts_.counters.path_probes;
  probed_since_ = static_cast<std::uint32_t>(nanoseconds(now));
  emit_probe(now, *path, out);
  parts_.schedule.arm(peer_, paths_.next_probe());
  return true;
}

// The lost packet that goes first; those that must not leave again end here, with their work.
[[gnu::always_inline]] inline SendSlot* Sender::next_lost() {
  SendSlot* lost = window_.first_to_repeat();
  while (lost != nullptr && !may_leave_again(*lost)) {
    parts_.works.abandon(lost->work, Status::local_protection);
    lost = window_.first_to_repeat();
  }
  return lost;
}

// The next packet of the work whose turn it is.
[[gnu::always_inline]] inline bool Sender::transmit_next(TimePoint now, TxPacket& out) {
  if (window_.span() >= parts_.window_span) {
    return false;
  }
  if (parts_.config.forced_reorder != 0) [[unlikely]] {
    reorder_on_purpose(now);
  }
  const Queue queue = choose_queue();
  if (queue == Queue::none) {
    return false;
  }
  const std::uint32_t index = queues_.front(queue);
  Work& work = parts_.works[index];
  SendSlot& slot = window_.open();
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
    queues_.remove(parts_.works.slab(), index, work);
    if (work.kind == WorkKind::read && work.refusals == 0) {
      ++reads_outstanding_;
    }
  }
  ++parts_.counters.data_pkts;
  const std::uint32_t mtu = parts_.config.mtu_payload;
  const std::uint32_t payload =
      work.kind == WorkKind::read ? 0 : std::min(mtu, work.length - slot.packet * mtu);
  const std::uint32_t bytes = sizeof(wire::DataHeader) + payload;
  slot.path = static_cast<std::uint8_t>(paths_.pick_in_run(now, bytes).value());
  emit(now, work, slot, out);
  return true;
}

// After silence all paths in turn: no timer of a path watches over questions, and a policy may hold
// on to paths that are dead. Every second question takes one that is known to work, because it may
// have been the answer that was lost.
PathId Sender::pick_for_question(TimePoint now) {
  if (!timer_.is_silent()) {
    asked_along_ = paths_.pick(now);
    return asked_along_;
  }
  ask_surest_ = !ask_surest_ && parts_.patience.losses_are_reported;
  if (const auto surest = paths_.health().witness(); surest && ask_surest_) {
    return *surest;
  }
  const auto next = static_cast<std::uint16_t>((asked_along_.value() + 1) % parts_.config.paths);
  asked_along_ = paths_.usable_near(now, PathId{next});
  return asked_along_;
}

// Not if the user has taken its memory back, nor if that memory is gone: carriers drop packets that
// they cannot read, which may be why this one was lost.
bool Sender::may_leave_again(const SendSlot& slot) const {
  const Work& work = parts_.works[slot.work];
  if (work.revoked) {
    return false;
  }
  if ((work.kind != WorkKind::send && work.kind != WorkKind::write) || work.phantom) {
    return true;
  }
  const std::uint32_t offset = slot.packet * parts_.config.mtu_payload;
  std::array<std::span<const std::byte>, kMaxSegments> parts{};
  work.slice(offset, std::min(parts_.config.mtu_payload, work.length - offset), parts);
  return std::all_of(parts.begin(), parts.end(), [](const std::span<const std::byte>& part) {
    return lent_is_readable(part.data(), part.size());
  });
}

bool Sender::retransmit(TimePoint now, SendSlot& slot, TxPacket& out) {
  window_.take_lost(slot);
  ++slot.attempt;
  if (!mutated(Mutation::retransmit_on_same_path)) {
    const bool surest = parts_.patience.losses_are_reported && slot.attempt >= kSurestFrom;
    slot.path =
        static_cast<std::uint8_t>(paths_.pick_other_than(now, PathId{slot.path}, surest).value());
  }
  emit(now, parts_.works[slot.work], slot, out);
  ++parts_.counters.retrans_pkts;
  parts_.counters.retrans_bytes += slot.length;
  return true;
}

// Messages of one packet, reads and bulk take turns, and so do the size classes of bulk: no small
// message waits until a gigabyte has left.
[[gnu::always_inline]] inline Queue Sender::choose_queue() {
  if (!queues_.has_bulk() && queues_.empty(Queue::reads)) {
    turn_ = queues_.empty(Queue::singles) ? turn_ : 0;
    return queues_.empty(Queue::singles) ? Queue::none : Queue::singles;
  }
  if (mutated(Mutation::starve_bulk) && !queues_.empty(Queue::singles)) [[unlikely]] {
    return Queue::singles;
  }
  for (int tries = 0; tries < 3; ++tries) {
    turn_ = static_cast<std::uint8_t>(turn_ == 2 ? 0 : turn_ + 1);
    switch (turn_) {
      case 0:
        if (!queues_.empty(Queue::singles)) {
          return Queue::singles;
        }
        break;
      case 1:
        if (queues_.has_bulk()) {
          return queues_.next_bulk();
        }
        break;
      default:
        // A refused read already counts.
        if (!queues_.empty(Queue::reads) &&
            (reads_outstanding_ < parts_.config.max_reads_per_peer ||
             parts_.works[queues_.front(Queue::reads)].refusals != 0)) {
          return Queue::reads;
        }
        break;
    }
  }
  return Queue::none;
}

[[gnu::always_inline]] inline void Sender::emit(TimePoint now, const Work& work, SendSlot& slot,
                                                TxPacket& out) {
  // The header is built in place. To build it elsewhere and copy it stalls: loads wider than the
  // stores before them wait until these have left the store buffer.
  wire::DataHeader& header = *new (out.header.data()) wire::DataHeader{};
  header.common = header_;
  header.common.attempt = slot.attempt;
  wire::address(header.common, {.destination_attachment = peer_.key.attachment.value(),
                                .destination_qpn = work.destination.value(),
                                .source_qpn = work.source.value()});
  header.common.path = slot.path;
  header.psn = slot.psn.value();
  header.back = static_cast<std::uint16_t>(slot.psn.minus(window_.una()));
  header.send_time = static_cast<std::uint32_t>(nanoseconds(now));
  header.message = work.message;
  header.message_length = work.length;
  header.key = work.key;
  fill_message(work, slot, out, header);
  header.payload_length = slot.length;

  window_.mark_in_flight(slot, now);
  chain_.link(slot);
  const bool last = !has_work() && !(parts_.config.ask_sparingly && awaits_answer_before(slot.psn));
  const bool tight = cc_.window() < parts_.tight_window;
  if (last || tight || slot.attempt != 0) {
    header.common.flags |= wire::kAckRequested;
    asked_ = slot.psn;
  }
  out.to = peer_.key.address;
  out.path = PathId{slot.path};
  out.ecn = Ecn::capable_0;
  out.header_size = sizeof header;
  parts_.finish(out);

  const Bytes charged = SendWindow::charged(slot);
  if (const Rate rate = cc_.pacing_rate(); !rate.is_zero()) [[unlikely]] {
    pace(now, rate.time_for(charged));
  }
  credits_.on_sent(slot.length);
  last_from_ = work.source;
  last_to_ = work.destination;
  timer_.on_sent(now);
  parts_.schedule.arm(peer_, now + timer_.tail_wait());
  parts_.tell(Event::Kind::packet_sent, now, peer_.id, slot.psn, out.path, slot.attempt);
}

// The next packet is due `interval` after this one was. Carriers that ask for packets in bursts,
// all at one time, have a pace_step: what has become due since the last burst leaves together, up
// to a turn. But a sender that had nothing to send, or was not allowed to, has nothing to make up
// for.
//
// No later than max_rto: if one bad sample made the rate tiny, packets must still leave that
// correct it.
[[gnu::hot]] void Sender::pace(TimePoint now, Duration interval) {
  const bool makes_up = pace_holds_back_ && parts_.config.pace_step > Duration::zero();
  const Duration late = makes_up ? interval * Scheduler::kPacketsOfTurn : Duration::zero();
  paced_until_ =
      std::min(std::max(paced_until_, now - late) + interval, now + parts_.config.max_rto);
}

// What depends on the kind of message: type, placement, payload.
[[gnu::always_inline]] inline void Sender::fill_message(const Work& work, SendSlot& slot,
                                                        TxPacket& out, wire::DataHeader& header) {
  const std::uint32_t offset = slot.packet * parts_.config.mtu_payload;
  std::uint32_t length = std::min(parts_.config.mtu_payload, work.length - offset);
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

// Looks the region up for each packet, retransmissions included: since the request was accepted it
// may have been deregistered. Then the packet carries the reason instead of bytes. The same if the
// packet was lost and its bytes cannot be read, which may be why the carrier did not take it.
std::uint32_t Sender::fill_response(const Work& work, const SendSlot& slot, std::uint32_t offset,
                                    std::uint32_t length, TxPacket& out, wire::DataHeader& header) {
  if (work.length == 0) {
    return 0;
  }
  const Endpoint* endpoint = parts_.endpoints.find(work.source);
  MemoryTable::Lookup source;
  source.status = Status::bad_qpn;
  if (endpoint != nullptr) {
    source = parts_.memory.resolve(RegionKey{work.key}, work.remote_address + offset, length,
                                   Access::remote_read, endpoint->config.domain);
  }
  if (source.status == Status::ok && slot.attempt != 0 && source.placement != Placement::phantom &&
      !lent_is_readable(source.data, length)) {
    source.status = Status::access_denied;
  }
  if (source.status != Status::ok) {
    header.common.flags |= wire::kReadFailed;
    header.key = static_cast<std::uint8_t>(source.status);
    // The bytes that were wanted, for the first time or again, will not leave.
    credits_.give_up(slot.attempt == 0 ? length : slot.length);
    return 0;
  }
  out.payload[0] = source.placement == Placement::phantom
                       ? phantom_payload(length)
                       : std::span<const std::byte>{source.data, length};
  parts_.counters.rdma_read_resp_bytes += length;
  return length;
}

void Sender::emit_probe(TimePoint now, PathId path, TxPacket& out) {
  wire::DataHeader header{};
  header.common = header_;
  header.common.type = static_cast<std::uint8_t>(wire::PacketType::probe);
  header.common.flags |= wire::kAckRequested;
  header.common.destination_qpn = last_to_.value();
  header.common.source_qpn = last_from_.value();
  header.common.path = path.value();
  header.psn = window_.una().value();
  last_probe_time_ = static_cast<std::uint32_t>(nanoseconds(now));
  header.send_time = last_probe_time_;
  out.to = peer_.key.address;
  out.path = path;
  out.ecn = Ecn::capable_0;
  out.header_size = sizeof header;
  out.payload = {};
  wire::store(out.header.data(), header);
  parts_.finish(out);
}

// The packet of a request that is sent as its n-th one. With forced reorder each block of 16 is
// permuted, by an exclusive or with a number that the seed determines.
std::uint32_t Sender::packet_order(const Work& work, std::uint32_t n) const {
  constexpr std::uint32_t kBlock = 16;
  const std::uint32_t block = n / kBlock * kBlock;
  if (parts_.config.forced_reorder == 0 || block + kBlock > work.packets) {
    return n;
  }
  const auto shuffle =
      static_cast<std::uint32_t>(mix64(parts_.config.seed ^ (block + work.message)));
  return block + ((n ^ shuffle) & (kBlock - 1));
}

// The contract allows any order, and this option lets applications find out whether they cope:
// requests change places and wait, and the packets of one request change places (packet_order()).
// What happens follows from the seed, like everything else.
void Sender::reorder_on_purpose(TimePoint now) {
  for (std::uint16_t tries = 0;
       tries < parts_.config.forced_reorder && !queues_.empty(Queue::singles); ++tries) {
    const std::uint32_t index = queues_.front(Queue::singles);
    Work& work = parts_.works[index];
    if (!work.held_back && parts_.rng.chance(kDisorder)) {
      work.held_back = true;
      work.not_before = now + Duration{parts_.rng.below(
                                  static_cast<std::uint32_t>(nanoseconds(parts_.config.base_rtt)))};
      queues_.remove(parts_.works.slab(), index, work);
      queues_.push_back(parts_.works.slab(), Queue::held_back, index, work);
      parts_.schedule.arm(peer_, work.not_before);
    } else if (parts_.rng.chance(kDisorder)) {
      queues_.remove(parts_.works.slab(), index, work);
      queues_.push_back(parts_.works.slab(), Queue::singles, index, work);
    } else {
      break;
    }
  }
}

}  // namespace weft::srd
