// Owns posted receives: how messages find them, the reads that fill them, the answers.
//
// A receive that takes a small message is over at once. One that takes a request goes through the
// states reading and answering: a read brings the bytes from the sender's memory, then an answer
// tells the sender that its buffer is free. The user is told when the bytes are there; the record
// lives on until the answer has got through.
#include <algorithm>
#include <cstring>

#include "srd/message/messenger.hpp"

namespace weft::srd {

namespace {

constexpr std::uint8_t kAnswerTries = 3;

}  // namespace

PostResult Messenger::post_receive(const MessageReceive& receive) {
  if (receive.data.size() > kMaxTransfer) {
    return PostResult::too_long;
  }
  if (receives_.used() >= config_.max_receives || completions_.size() >= config_.max_completions) {
    return PostResult::queue_full;
  }
  const std::uint32_t index = receives_.allocate();
  ReceiveRecord& record = receives_[index];
  record = ReceiveRecord{};
  record.state = ReceiveRecord::State::posted;
  record.cookie = receive.cookie;
  record.tag = receive.tag;
  record.ignore = receive.ignore;
  record.data = receive.data.data();
  record.capacity = static_cast<std::uint32_t>(receive.data.size());
  record.any_source = !receive.from.has_value();
  record.from = receive.from ? key_of(*receive.from) : 0;
  const auto matches = [&](const Waiting& waiting) {
    return ((record.tag ^ waiting.tag) & ~record.ignore) == 0 &&
           (record.any_source || record.from == waiting.from);
  };
  while (const auto waiting = waiting_.take_first(matches)) {
    if (sender_is_gone(arrivals_[waiting->arrival])) {
      ++counters_.stale;
      release_arrival(waiting->arrival);
      continue;
    }
    begin_receive(index, waiting->arrival);
    return PostResult::accepted;
  }
  (void)posted_.push(index);  // has room: its limit is that of the records
  return PostResult::accepted;
}

bool Messenger::cancel(std::uint64_t cookie) {
  const auto index = posted_.take_first(
      [&](std::uint32_t candidate) { return receives_[candidate].cookie == cookie; });
  if (!index) {
    return false;
  }
  ReceiveRecord& record = receives_[*index];
  MessageCompletion completion;
  completion.cookie = cookie;
  completion.kind = MessageCompletion::Kind::receive;
  completion.status = Status::flushed;
  completion.tag = record.tag;
  complete(completion);
  record.state = ReceiveRecord::State::free;
  receives_.release(*index);
  return true;
}

// True if the process that holds the bytes of this request has ended.
bool Messenger::sender_is_gone(const Arrival& arrival) const {
  const auto history = engine_.history_of(partners_[arrival.partner].address.peer);
  return arrival.is_request() && history->life.value() != arrival.header.source_life.value();
}

// Joins a receive with its message. A small one is copied here, and the receive is over; a large
// one is read from the sender.
void Messenger::begin_receive(std::uint32_t index, std::uint32_t arrival_index) {
  const Arrival& arrival = arrivals_[arrival_index];
  ReceiveRecord& record = receives_[index];
  record.header = arrival.header;
  record.partner = arrival.partner;
  record.to = partners_[arrival.partner].address;
  record.to.qkey = arrival.header.qkey.value();
  const std::uint32_t length = arrival.header.length.value();
  if (arrival.is_request()) {
    release_arrival(arrival_index);
    record.state = ReceiveRecord::State::reading;
    resume(index);
    return;
  }
  const std::uint32_t count = std::min(length, record.capacity);
  if (count != 0) {
    const std::byte* bytes = data_buffers_.get() + arrival.buffer * engine_.max_send_size();
    std::memcpy(record.data, bytes + sizeof(Header), count);
  }
  release_arrival(arrival_index);
  end_receive(index, length > record.capacity ? Status::length_error : Status::ok);
  record.state = ReceiveRecord::State::free;
  receives_.release(index);
}

// Posts the read that fills the receive, or the answer that follows it. If the engine has no room,
// progress() comes back to it.
void Messenger::resume(std::uint32_t index) {
  ReceiveRecord& record = receives_[index];
  PostResult result = PostResult::accepted;
  if (record.state == ReceiveRecord::State::reading) {
    const std::uint32_t count = std::min(record.header.length.value(), record.capacity);
    if (count == 0) {
      on_read_done(index, Status::ok);
      return;
    }
    ReadRequest request;
    request.peer = record.to.peer;
    request.source = data_endpoint();
    request.destination = record.to.endpoint;
    request.qkey = record.to.qkey;
    request.cookie = cookie_of(Lane::read, index);
    request.segments[0] = {record.data, count};
    request.remote_key = RegionKey{record.header.region.value()};
    request.remote_address = message::address_of_message(record.header.message.value());
    result = engine_.post(request);
  } else {
    SendRequest request;
    request.peer = record.to.peer;
    request.source = control_endpoint();
    request.destination = Qpn{record.to.endpoint.value() + 1};
    request.qkey = record.to.qkey;
    request.cookie = cookie_of(Lane::answer, index);
    request.segments[0] = {reinterpret_cast<std::byte*>(&record.header), sizeof record.header};
    result = engine_.post(request);
    if (result == PostResult::accepted) {
      ++record.tries;
    }
  }
  if (result != PostResult::accepted && !record.waits) {
    record.waits = true;
    (void)owed_.push(index);
  }
}

// The bytes are here, or never will be. The user is told in any case; the sender, unless its
// process has ended.
void Messenger::on_read_done(std::uint32_t index, Status status) {
  ReceiveRecord& record = receives_[index];
  const auto history = engine_.history_of(record.to.peer);
  if (history->life.value() != record.header.source_life.value()) {
    status = Status::peer_restarted;  // what it read is another life's memory
  }
  switch (status) {
    case Status::ok:
      end_receive(index, record.header.length.value() > record.capacity ? Status::length_error
                                                                        : Status::ok);
      answer(index, Status::ok);
      return;
    case Status::peer_restarted:  // no process waits for an answer any more
      end_receive(index, status);
      record.state = ReceiveRecord::State::free;
      receives_.release(index);
      return;
    case Status::bad_key:  // the sender has given the message up and closed its region
    case Status::out_of_bounds:
    case Status::access_denied:  // and the key names another region since
      end_receive(index, Status::flushed);
      answer(index, Status::flushed);
      return;
    default:
      end_receive(index, status);
      answer(index, status);
      return;
  }
}

// The answer was lost in an outage. The sender watches us, so it usually notices the outage as
// well; but not if it is over before the sender has lost patience. So the answer is tried some more
// times.
void Messenger::on_answer_done(std::uint32_t index, Status status) {
  ReceiveRecord& record = receives_[index];
  const bool outage = status == Status::unresponsive || status == Status::unreachable;
  if (outage && record.tries < kAnswerTries) {
    resume(index);
    return;
  }
  record.state = ReceiveRecord::State::free;
  receives_.release(index);
}

// Tells the user. The record may stay in use to answer the sender.
void Messenger::end_receive(std::uint32_t index, Status status) {
  const ReceiveRecord& record = receives_[index];
  ++counters_.received;
  counters_.truncated += status == Status::length_error;
  MessageCompletion completion;
  completion.cookie = record.cookie;
  completion.kind = MessageCompletion::Kind::receive;
  completion.status = status;
  completion.has_immediate = (record.header.flags & message::kHasImmediate) != 0;
  completion.immediate = record.header.immediate.value();
  completion.tag = record.header.tag.value();
  completion.length = record.header.length.value();
  completion.peer = record.to;
  complete(completion);
}

// Turns the record into the answer: its header becomes that of `finished`, with the same number.
void Messenger::answer(std::uint32_t index, Status status) {
  ReceiveRecord& record = receives_[index];
  record.state = ReceiveRecord::State::answering;
  record.tries = 0;
  Header& header = record.header;
  header.kind = static_cast<std::uint8_t>(message::Kind::finished);
  header.flags = 0;
  header.status = static_cast<std::uint8_t>(status);
  header.destination_life = header.source_life.value();  // only that life knows the number
  header.source_life = engine_.config().life.value();
  header.qkey = config_.qkey;
  resume(index);
}

}  // namespace weft::srd
