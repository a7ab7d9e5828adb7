// Owns what a receiver owes its peer: which packets an acknowledgement tells of, when, and how.
#include "srd/engine/receiver.hpp"

#include "srd/engine/engine_parts.hpp"
#include "srd/engine/mutation.hpp"

namespace weft::srd {
namespace {

Echo echo_of(TimePoint now, const wire::DataHeader& header, const RxPacket& packet) {
  Echo echo;
  echo.arrived = arrival_of(now, packet);
  echo.psn = Psn{header.psn.value()};
  echo.send_time = header.send_time.value();
  echo.path = header.common.path.value();
  echo.attempt = header.common.attempt;
  echo.valid = true;
  echo.congested = packet.ecn == Ecn::congested;
  echo.probe = header.common.type == static_cast<std::uint8_t>(wire::PacketType::probe);
  return echo;
}

void tell_echo(TimePoint now, const Echo& echo, wire::AckHeader& header) {
  header.common.flags |= wire::kEchoValid;
  header.common.flags |= echo.congested ? wire::kEchoCongested : 0;
  header.common.flags |= echo.probe ? wire::kEchoProbe : 0;
  header.common.attempt = echo.attempt;
  header.common.path = echo.path;
  header.echo_psn = echo.psn.value();
  header.echo_send_time = echo.send_time;
  header.wait = static_cast<std::uint32_t>(nanoseconds(now - echo.arrived));
}

}  // namespace

// [wire 4.4] An acknowledgement echoes one packet: the latest, unless an earlier one carried a mark
// that has not been told yet. How many carried one is counted apart (count_mark()). But each probe
// is echoed, because its answer speaks for its path. [wire 4.7]
[[gnu::hot]] bool Receiver::note_arrival(EngineParts& parts, TimePoint now,
                                         const wire::DataHeader& header, const RxPacket& packet) {
  const bool congested = packet.ecn == Ecn::congested;
  const bool probe = header.common.type == static_cast<std::uint8_t>(wire::PacketType::probe);
  if (congested) {
    ++parts.counters.congested_pkts;
  }
  if (probe) [[unlikely]] {
    // The peer's oldest packet in flight: it has not heard what it was told.
    say_twice_ = say_twice_ || (window_.open() && Psn{header.psn.value()}.before(told_));
    if (probes_.empty() || !mutated(Mutation::answer_one_probe)) {
      parts.probe_echoes.push(probes_, echo_of(now, header, packet));
    }
  } else if (!echo_.valid || !echo_.congested || congested) {
    echo_ = echo_of(now, header, packet);
  }
  ++unacknowledged_;
  // The packet that asks for an acknowledgement may overtake others. Then the sender waits for the
  // one that fills the last gap, which does not ask.
  const bool whole = window_.cumulative() == window_.top();
  const bool closes = gap_at_end_ && whole;
  const bool asked = (header.common.flags & wire::kAckRequested) != 0;
  gap_at_end_ = !whole && (gap_at_end_ || asked);
  return asked || closes || congested || probe || unacknowledged_ >= parts.config.ack_every;
}

void Receiver::note_again(EngineParts& parts, const wire::DataHeader& header, std::uint8_t code) {
  parts.told_once.push(again_, {Psn{header.psn.value()}, code, header.common.attempt});
}

[[gnu::hot]] void Receiver::write_ack(EngineParts& parts, TimePoint now,
                                      const wire::CommonHeader& common, std::uint32_t granted,
                                      TxPacket& out) {
  wire::AckHeader header{};
  header.common = common;
  const std::optional<Psn> leaving = parting_ ? parting_->take_word() : std::nullopt;
  if (leaving) [[unlikely]] {  // echoes of probes wait, and that of a packet is settled by the rest
    header.common.flags |= wire::kLeaving;
    header.echo_psn = leaving->value();
  } else {
    if (!echo_.valid && !probes_.empty()) [[unlikely]] {
      echo_ = parts.probe_echoes.take(probes_);
    }
    if (echo_.valid) {
      tell_echo(now, echo_, header);
    }
  }
  // No acknowledgement of ours is acknowledged, and each takes any path, which may be a dead one.
  // Where queues lose without a report, more packets would make a bad case worse.
  say_twice_ = say_twice_ && (echo_.valid || grant_) && parts.patience.losses_are_reported;
  if (!window_.open() && !mutated(Mutation::acknowledge_without_window)) {
    header.common.flags |= wire::kNoWindow;  // [wire 4.4]
  }
  if (parts.config.receiver_credits || grant_) {
    header.common.flags |= wire::kCreditValid;
    header.credit = parts.config.receiver_credits ? granted : demand_;
  }
  const Psn cumulative = window_.cumulative();
  header.cumulative = cumulative.value();
  told_ = cumulative;
  if (mutated(Mutation::acknowledge_too_much) && cumulative.before(window_.top())) [[unlikely]] {
    header.cumulative = cumulative.value() + 1;
  }
  header.marked = marked_;
  std::byte* cursor = write_map(out.header.data() + sizeof header, header);
  cursor = write_results(parts, cursor, header);
  wire::store(out.header.data(), header);
  out.header_size = static_cast<std::uint16_t>(cursor - out.header.data());
  unacknowledged_ = 0;
  grant_ = false;
  echo_.valid = false;
}

// The selective map: the words of the window as they are, none if nothing is missing.
[[gnu::always_inline]] inline std::byte* Receiver::write_map(std::byte* cursor,
                                                             wire::AckHeader& header) const {
  const Psn cumulative = window_.cumulative();
  std::uint8_t words = 0;
  if (window_.open() && cumulative.before(window_.top())) {
    for (Psn at{cumulative.value() & ~63U}; at.before(window_.top()); at = at.plus(64)) {
      wire::store(cursor, wire::big_uint64_buf_t{window_.word(at)});
      cursor += sizeof(std::uint64_t);
      ++words;
    }
  }
  header.sack_words = words;
  return cursor;
}

[[gnu::always_inline]] inline std::byte* Receiver::write_results(EngineParts& parts,
                                                                 std::byte* cursor,
                                                                 wire::AckHeader& header) {
  std::uint8_t results = 0;
  const auto add = [&](const ReceiveWindow::Result& result) {
    wire::ResultEntry entry{};
    entry.psn = result.psn.value();
    entry.code = result.code;
    entry.attempt = result.attempt;
    wire::store(cursor, entry);
    cursor += sizeof entry;
    ++results;
  };
  // Refusals first, and always all of them: without its refusal a number in the map means success.
  for (const ReceiveWindow::Result& result : window_.results()) {
    add(result);
  }
  while (results < wire::kMaxResults && !again_.empty()) {
    add(parts.told_once.take(again_));
  }
  header.results = results;
  return cursor;
}

void Receiver::forget(EngineParts& parts) {
  parts.told_once.forget(again_);
  parts.probe_echoes.forget(probes_);
  if (mutated(Mutation::keep_window_of_former_life)) {
    return;
  }
  Receiver fresh;
  fresh.answer(reply_to_, reply_from_);
  *this = std::move(fresh);
}

}  // namespace weft::srd
