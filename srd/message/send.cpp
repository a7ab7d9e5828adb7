// Owns messages on their way out: numbers, requests, answers, and the failure of a partner.
//
// A message waits (Partner::waiting) until the window and the limit of requests have room, leaves
// (start()), and ends when the engine has delivered it; a request is then parked until the
// receiver's answer. A refused small message goes out again as a request, ahead of those that wait.
#include "srd/base/check.hpp"
#include "srd/message/messenger.hpp"

namespace weft::srd {

using message::kMaxRequests;
using message::kNone;
using message::kOrderWindow;

namespace {

constexpr std::uint8_t kEagerRetries = 1;  // by the engine, before the message becomes a request

}  // namespace

// Sends what may be sent. Converted messages go first: the receiver waits for their sequence
// numbers.
void Messenger::launch(std::uint32_t index) {
  Partner& partner = partners_[index];
  notice_restart(index);
  if (partner.parked != 0 && !partner.watched) {
    watch(index);
  }
  while (!partner.converting.empty()) {
    if (!start(partner.converting.front())) {
      stall(index);
      return;
    }
    partner.converting.pop(sends_);
  }
  const bool ordered = config_.order == MessageOrder::ordered;
  while (!partner.waiting.empty() && partner.requests < kMaxRequests &&
         (!ordered || partner.next_sequence - partner.oldest < kOrderWindow)) {
    SendRecord& record = sends_[partner.waiting.front()];
    // While the receiver has no room for eager messages, small ones become requests, too.
    const bool was_request = record.request;
    record.request = was_request || partner.converted != 0;
    record.sequence = partner.next_sequence;
    if (!start(partner.waiting.front())) {
      record.request = was_request;
      stall(index);
      return;
    }
    partner.waiting.pop(sends_);
    ++partner.next_sequence;
    if (record.request) {
      ++partner.requests;
    }
  }
}

// Hands a message to the engine; false if there is no room.
bool Messenger::start(std::uint32_t index) {
  SendRecord& record = sends_[index];
  Partner& partner = partners_[record.partner];
  if (record.request && !record.numbered) {
    give_number(index);
  }
  if (record.request && record.length != 0 && record.region == RegionKey{}) {
    Region region;
    region.address = message::address_of_message(record.number);
    region.data = const_cast<std::byte*>(record.data);  // remote_read never writes
    region.length = record.length;
    region.access = Access::remote_read;
    region.domain = config_.domain;
    const Result<RegionKey> key = engine_.memory().insert(region);
    if (!key) {
      return false;
    }
    record.region = *key;
  }
  const auto history = engine_.history_of(partner.address.peer);
  Header& header = record.header;
  header = Header{};
  header.kind =
      static_cast<std::uint8_t>(record.request ? message::Kind::request : message::Kind::eager);
  header.flags = static_cast<std::uint8_t>(
      (record.has_immediate ? message::kHasImmediate : 0) |
      (config_.order == MessageOrder::unordered ? message::kUnordered : 0));
  header.immediate = record.immediate;
  header.tag = record.tag;
  header.source_life = engine_.config().life.value();
  header.destination_life = history->life_known ? history->life.value() : 0;
  header.epoch = partner.epoch;
  header.sequence = record.sequence;
  header.length = record.length;
  header.message = record.number;
  header.region = record.region.value();
  header.qkey = config_.qkey;

  SendRequest request;
  request.peer = partner.address.peer;
  request.source = record.request ? control_endpoint() : data_endpoint();
  request.destination = Qpn{partner.address.endpoint.value() + (record.request ? 1 : 0)};
  request.qkey = record.qkey;
  request.cookie = cookie_of(Lane::send, index);
  request.rnr_retry = record.request ? kRnrRetryForever : kEagerRetries;
  request.segments[0] = {reinterpret_cast<std::byte*>(&header), sizeof header};
  if (!record.request) {
    request.segments[1] = {const_cast<std::byte*>(record.data), record.length};
  }
  if (engine_.post(request) != PostResult::accepted) {
    return false;
  }
  record.in_engine = true;
  ++(record.request ? counters_.requests_sent : counters_.eager_sent);
  return true;
}

// Numbers wrap after 2^32 requests to one partner, and one may still be in use then.
void Messenger::give_number(std::uint32_t index) {
  SendRecord& record = sends_[index];
  Partner& partner = partners_[record.partner];
  do {
    record.number = partner.next_number++;
  } while (sends_by_number_.find(number_key(record.partner, record.number)) !=
           decltype(sends_by_number_)::kAbsent);
  sends_by_number_.insert(number_key(record.partner, record.number), index);
  record.numbered = true;
}

// Once per partner, however many of its messages found no room.
void Messenger::stall(std::uint32_t index) {
  if (!partners_[index].stalled) {
    partners_[index].stalled = true;
    (void)stalled_.push(index);
  }
}

void Messenger::on_send_done(std::uint32_t index, Status status) {
  SendRecord& record = sends_[index];
  const std::uint32_t at = record.partner;
  Partner& partner = partners_[at];
  record.in_engine = false;
  if (record.status != Status::ok) {
    end_send(index, record.status);
    return;
  }
  notice_restart(at);
  if (sends_[index].kind == SendRecord::Kind::none) {
    return;
  }
  if (status == Status::ok) {
    settle_sequence(partner, record.sequence);
    if (!record.request || record.answered) {
      end_send(index, record.answer);
    } else {
      record.parked = true;
      ++partner.parked;
    }
  } else if (!record.request &&
             (status == Status::receiver_not_ready || status == Status::length_error)) {
    // The receiver has no room, or smaller packets than ours. Later messages wait for this one, so
    // it goes out even if there are kMaxRequests unanswered ones.
    record.request = record.converted = true;
    ++counters_.converted;
    ++partner.converted;
    ++partner.requests;
    partner.converting.push(sends_, index);
  } else {
    fail_partner(at, status);
  }
  launch(at);
}

// The message has arrived. The window moves over all that have arrived from `oldest` on.
void Messenger::settle_sequence(Partner& partner, std::uint32_t sequence) {
  const auto bit = [&](std::uint32_t at) -> std::pair<std::uint64_t&, std::uint64_t> {
    return {partner.arrived[at % kOrderWindow / 64], std::uint64_t{1} << at % 64};
  };
  const auto [word, mask] = bit(sequence);
  word |= mask;
  while (partner.oldest != partner.next_sequence) {
    const auto [oldest, oldest_mask] = bit(partner.oldest);
    if ((oldest & oldest_mask) == 0) {
      break;
    }
    oldest &= ~oldest_mask;
    ++partner.oldest;
  }
}

// The engine must have finished with the record.
void Messenger::end_send(std::uint32_t index, Status status) {
  const SendRecord& record = sends_[index];
  MessageCompletion completion;
  completion.cookie = record.cookie;
  completion.kind = record.kind == SendRecord::Kind::message ? MessageCompletion::Kind::send
                    : record.kind == SendRecord::Kind::write ? MessageCompletion::Kind::write
                                                             : MessageCompletion::Kind::read;
  completion.status = status;
  completion.tag = record.tag;
  completion.length = record.length;
  completion.has_immediate = record.has_immediate;
  completion.immediate = record.immediate;
  completion.peer = partners_[record.partner].address;
  completion.peer.qkey = record.qkey;
  complete(completion);
  release_send(index);
}

void Messenger::release_send(std::uint32_t index) {
  SendRecord& record = sends_[index];
  Partner& partner = partners_[record.partner];
  engine_.memory().erase(record.region);
  record.region = RegionKey{};
  if (record.numbered) {
    sends_by_number_.erase(number_key(record.partner, record.number));
  }
  if (record.parked && --partner.parked == 0 && partner.watched) {
    engine_.flush(partner.address.peer, watch_endpoint());
  }
  // A failure has taken it from the list, and set these counts back, already.
  if (record.kind == SendRecord::Kind::message && record.status == Status::ok) {
    partner.under_way.take(sends_, index);
    partner.requests -= record.request;
    partner.converted -= record.converted;
  }
  record.kind = SendRecord::Kind::none;
  sends_.release(index);
}

// --- Failure

// Everything under way to a former life is over: that life never answers.
void Messenger::notice_restart(std::uint32_t index) {
  const Partner& partner = partners_[index];
  if (engine_.history_of(partner.address.peer)->restarts != partner.restarts) {
    fail_partner(index, Status::peer_restarted);
  }
}

// A watch that had not left yet when its peer restarted goes on to the next life, which refuses it
// like the former one did. So it does not end, although the peer knows of no request any more.
void Messenger::notice_silent_restarts() {
  for (std::uint32_t i = 0; i < partners_.capacity(); ++i) {
    if (partners_[i].parked != 0) {
      notice_restart(i);
    }
  }
}

// Ends all messages to a partner: the receiver would wait for the one that failed before it took
// any of the others. Later messages begin a new epoch.
void Messenger::fail_partner(std::uint32_t index, Status status) {
  Partner& partner = partners_[index];
  ++counters_.partner_failures;
  partner.restarts = engine_.history_of(partner.address.peer)->restarts;
  partner.waiting.clear();
  partner.converting.clear();
  while (!partner.under_way.empty()) {
    const std::uint32_t at = partner.under_way.first();
    partner.under_way.take(sends_, at);
    SendRecord& record = sends_[at];
    record.status = status;
    engine_.memory().erase(record.region);  // the peer must not read it from now on
    record.region = RegionKey{};
    if (!record.in_engine) {
      end_send(at, status);
    }
  }
  ++partner.epoch;
  partner.next_sequence = 0;
  partner.oldest = 0;
  partner.arrived = {};
  partner.requests = 0;
  partner.converted = 0;
}

// A receiver may answer a request as late as it likes, and meanwhile the engine hears nothing from
// that peer. To notice its death we post a send that the peer refuses and the engine repeats, less
// and less often. Reads need no such watch: the engine itself probes a responder.
void Messenger::watch(std::uint32_t index) {
  Partner& partner = partners_[index];
  if (partner.watched) {
    return;
  }
  SendRequest request;
  request.peer = partner.address.peer;
  request.source = watch_endpoint();
  request.destination = Qpn{partner.address.endpoint.value() + 2};
  request.qkey = partner.address.qkey;
  request.cookie = cookie_of(Lane::watch, index);
  if (engine_.post(request) == PostResult::accepted) {
    partner.watched = true;
  } else {
    stall(index);
  }
}

void Messenger::on_watch_done(std::uint32_t index, Status status) {
  Partner& partner = partners_[index];
  partner.watched = false;
  notice_restart(index);
  if (status == Status::flushed) {
    // By release_send(), for this partner or another messenger of the same peer, when its last
    // request was answered.
    if (partner.parked != 0) {
      watch(index);
    }
    return;
  }
  if (status != Status::peer_restarted) {
    // The peer is dead, or has closed its messenger; if the watch was accepted, another user of its
    // engine has that endpoint now.
    fail_partner(index, status == Status::ok ? Status::bad_qpn : status);
  }
}

// --- Answers

void Messenger::take_answer(std::uint32_t index, const Header& header) {
  const std::uint32_t at = sends_by_number_.find(number_key(index, header.message.value()));
  SendRecord* const record = at == decltype(sends_by_number_)::kAbsent ? nullptr : &sends_[at];
  if (record == nullptr || record->answered || record->status != Status::ok ||
      header.epoch.value() != record->header.epoch.value()) {
    ++counters_.unknown_answer;
    return;
  }
  record->answered = true;
  record->answer = static_cast<Status>(header.status);
  if (!record->in_engine) {
    end_send(at, record->answer);
    launch(index);
  }
}

}  // namespace weft::srd
