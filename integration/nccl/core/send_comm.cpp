// Owns matching sends with announced buffers, and writing them.
//
// NCCL matches by tag, in order: a send takes the oldest announced buffer with its tag. Until one
// is announced the send waits in `waiting_`, and an eager message does, too, although it is on its
// way or there. Announcements may overtake each other; they are taken into use only in their own
// order (first_ to known_).
#include "integration/nccl/core/send_comm.hpp"

#include <algorithm>
#include <bit>

namespace weft::nccl {

void SendComm::ask(Links& links, std::uint32_t listener, std::uint64_t secret) {
  listener_ = listener;
  secret_ = secret;
  ControlHeader hello;
  hello.kind = static_cast<std::uint8_t>(ControlKind::hello);
  hello.from_number = number;
  hello.from_nonce = nonce;
  hello.sequence = listener;
  hello.secret = secret;
  pending = 1;  // an answer: the peer is watched
  links.send(partner, hello);
}

Outcome SendComm::post(Links& links, std::byte* data, std::size_t size, std::int64_t tag,
                       const CommRegion* region, Request*& out) {
  out = nullptr;
  if (size > srd::kMaxTransfer || (size != 0 && (!knows(region) || !region->holds(data, size)))) {
    return Outcome::invalid_argument;
  }
  // No free request is no error: NCCL calls again later.
  Request* const request = requests_.take(owner);
  if (request == nullptr) {
    return Outcome::ok;
  }
  const auto index = static_cast<std::uint32_t>(requests_.index_of(*request));
  out = request;
  request->count = 1;
  request->sizes[0] = static_cast<std::uint32_t>(size);
  if (state != State::open) {
    refuse(*request);
    return Outcome::ok;
  }
  ++pending;
  links.counters().sends += 1;
  links.counters().sent_bytes += size;
  const auto length = static_cast<std::uint32_t>(size);
  const std::uint32_t eager = eager_.next();
  if (send_eagerly(links, {data, size}, tag)) {
    waiting_.push_back({eager, 0, length, tag});
    end(*request, Outcome::ok);
    (void)advance(links);
    return Outcome::ok;
  }
  records_[index] = {data, length, tag, region};
  waiting_.push_back({std::nullopt, index, length, tag});
  ++unsent_;
  // A buffer may have been announced already.
  (void)advance(links);
  links.counters().sends_waited += unsent_ != 0 ? 1 : 0;
  return Outcome::ok;
}

bool SendComm::send_eagerly(Links& links, std::span<const std::byte> bytes, std::int64_t tag) {
  if (exact || links.tells_early() || bytes.size() > kMaxEager || unsent_ != 0 || writes_ != 0 ||
      !eager_.has_room()) {
    return false;
  }
  // If it is known by now that the message does not fit, its request is to tell.
  if (const std::optional<Place> place = find(tag); place && !fits(bytes.size(), *place)) {
    return false;
  }
  EagerHeader header;
  header.control.kind = static_cast<std::uint8_t>(ControlKind::eager);
  header.control.to_number = partner_number;
  header.control.to_nonce = partner_nonce;
  header.control.from_number = number;
  header.control.from_nonce = nonce;
  header.control.sequence = eager_.next();
  header.control.qkey = links.qkey();
  header.tag = tag;
  if (!links.try_send_eager(partner, header, bytes, number)) {
    return false;
  }
  eager_.begin();
  ++in_engine;
  ++links.counters().eager;
  return true;
}

bool SendComm::on_announce(Links& links, const ControlHeader& header,
                           std::span<const std::byte> message) {
  // Announced before, or beyond the slots that a partner may have open.
  const std::uint32_t sequence = header.sequence.value();
  if (sequence - first_ >= kAnnounced || group(sequence).known) {
    return false;
  }
  Group& announced = group(sequence);
  announced.known = true;
  announced.unused = static_cast<std::uint8_t>((1U << header.count) - 1);
  for (std::size_t i = 0; i < header.count; ++i) {
    const ControlEntry entry = entry_of(message, i);
    announced.entries[i] = {entry.address.value(), srd::RegionKey{entry.key.value()},
                            entry.size.value(), entry.tag.value()};
  }
  take_into_use();
  (void)advance(links);
  return true;
}

// Only groups whose predecessors are all here: otherwise a send might take a younger buffer than it
// should.
void SendComm::take_into_use() {
  while (known_ - first_ < kAnnounced && group(known_).known) {
    ++known_;
  }
}

// A search over at most 80 groups of 8. A sender that follows its receiver finds the first one to
// fit.
std::optional<SendComm::Place> SendComm::find(std::int64_t tag) {
  for (std::uint32_t sequence = first_; sequence != known_; ++sequence) {
    const Group& one = group(sequence);
    for (unsigned left = one.unused; left != 0; left &= left - 1) {
      const auto sub = static_cast<std::uint8_t>(std::countr_zero(left));
      if (one.entries[sub].tag == tag) {
        return Place{sequence, sub};
      }
    }
  }
  return std::nullopt;
}

// False: the engine has no room.
bool SendComm::write(Links& links, std::uint32_t index, Place place) {
  const Record& record = records_[index];
  const Entry& entry = group(place.sequence).entries[place.sub];
  srd::WriteRequest request;
  request.peer = partner.peer;
  request.source = links.data();
  request.destination = partner.data();
  request.qkey = partner.qkey;
  request.cookie = Cookie{Lane::write, number, index}.pack();
  request.segments[0] = {record.data, record.size};
  request.remote_address = entry.address;
  request.remote_key = entry.key;
  request.immediate = Immediate{partner_number, place.sequence, place.sub}.pack();
  if (links.engine().post(request) != srd::PostResult::accepted) {
    return false;
  }
  ++in_engine;
  ++writes_;
  return true;
}

// Goes through the waiting sends, oldest first. One without a matching buffer does not hold up
// sends of other tags behind it.
bool SendComm::advance(Links& links) {
  for (std::size_t at = 0; at < waiting_.size() && first_ != known_ && state == State::open;) {
    const Waiting message = waiting_[at];
    const std::optional<Place> place = find(message.tag);
    if (!place) {
      ++at;
      continue;
    }
    // The receiver would wait for ever for a message that cannot come: both ends fail.
    if (!fits(message.size, *place)) {
      ControlHeader reject;
      reject.kind = static_cast<std::uint8_t>(ControlKind::reject);
      reject.to_number = partner_number;
      reject.to_nonce = partner_nonce;
      links.send(partner, reject);
      fail(Outcome::invalid_usage);
      return true;
    }
    if (message.eager) {
      eager_.match(*message.eager);
    } else if (write(links, message.index, *place)) {
      --unsent_;
    } else {
      // Its turn comes in Core::progress(), when completions have made room.
      ++links.counters().stalls;
      (void)links.stalled().push(number);
      return false;
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
    // A group gives its slot back when all of its buffers are used, and only as the oldest.
    Group& used = group(place->sequence);
    used.unused = static_cast<std::uint8_t>(used.unused & ~(1U << place->sub));
    while (first_ != known_ && group(first_).unused == 0) {
      group(first_++).known = false;
    }
    take_into_use();
  }
  return true;
}

void SendComm::on_written(Links& links, std::uint32_t index, srd::Status status) {
  --in_engine;
  --writes_;
  Request& request = requests_[index];
  if (state == State::closed ||
      request.state.load(std::memory_order_relaxed) != Request::State::pending) {
    return;
  }
  if (status == srd::Status::ok) {
    end(request, Outcome::ok);
    // The next send of the connection may have waited for what has just ended.
    (void)advance(links);
    return;
  }
  // Our own memory was taken back while it was lent; everything else is the other end's doing.
  fail(status == srd::Status::local_protection || status == srd::Status::flushed
           ? Outcome::invalid_usage
           : Outcome::remote_error);
}

void SendComm::end_waiting(Outcome outcome) {
  for (const Waiting& message : waiting_) {
    if (!message.eager) {
      end(requests_[message.index], outcome);
    }
  }
  waiting_.clear();
  unsent_ = 0;
}

// The other end is closed and takes no more; what it has announced was filled, or is being filled,
// and ends as usual. Its good-bye may overtake its welcome: then it has accepted all the same, and
// connect() must not tell otherwise only because messages changed places.
void SendComm::desert() {
  if (usable()) {
    state = State::deserted;
    end_waiting(Outcome::remote_error);
  }
}

void SendComm::fail(Outcome outcome) {
  if (state == State::failed || state == State::closed) {
    return;
  }
  state = State::failed;
  // Writes that the engine already has end later, and on_written() finds their requests ended.
  // Their memory stays lent until it is deregistered or the connection is closed (revoke()).
  failure = outcome;
  waiting_.clear();
  unsent_ = 0;
  for (std::size_t i = 0; i < kMaxSends; ++i) {
    if (requests_[i].state.load(std::memory_order_relaxed) == Request::State::pending) {
      end(requests_[i], outcome);
    }
  }
}

void SendComm::revoke(Links& links, const CommRegion* region) {
  const auto concerned = [&](std::uint32_t index) {
    return region == nullptr || records_[index].region == region;
  };
  if (std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& message) {
        return !message.eager && concerned(message.index);
      })) {
    fail(Outcome::invalid_usage);
  }
  if (writes_ == 0) {
    return;
  }
  links.engine().revoke([&](std::uint64_t word) {
    const Cookie cookie = Cookie::unpack(word);
    return cookie.lane == Lane::write && cookie.number == number && concerned(cookie.index);
  });
}

}  // namespace weft::nccl
