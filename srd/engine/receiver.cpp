// Owns what a receiver owes its peer: which packets an acknowledgement tells of, when, and how.
#include "srd/engine/receiver.hpp"

#include "srd/engine/engine_parts.hpp"
#include "srd/engine/mutation.hpp"

namespace weft::srd {
namespace {

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

void Receiver::note_probe(EngineParts& parts, TimePoint now, const wire::DataHeader& header,
                          const RxPacket& packet) {
  // The peer's oldest packet in flight: it has not heard what it was told.
  say_twice_ = say_twice_ || (window_.open() && Psn{header.psn.value()}.before(told_));
  if (probes_.empty() || !mutated(Mutation::answer_one_probe)) {
    parts.probe_echoes.push(probes_, Echo(now, header, packet));
  }
  (void)wants_ack(header);
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
