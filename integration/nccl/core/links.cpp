// Owns the endpoints and the buffers of control messages.
//
// There are three endpoints: for control messages, for data (writes with immediate, for which no
// receive is posted), and one that receives nothing, to which watch messages go. A control message
// that finds no free buffer, or no room in the engine, waits in the backlog, and later ones wait
// behind it.
#include "integration/nccl/core/links.hpp"

#include <algorithm>
#include <cstring>

namespace weft::nccl {

bool Comm::knows(const CommRegion* region) const {
  return std::any_of(regions.begin(), regions.end(),
                     [region](const auto& one) { return one.get() == region; });
}

// The queue pairs of control, data and watching are consecutive, so a handle needs to name only
// one.
Result<void> Links::open() {
  // A key for a buffer of no bytes: NCCL may announce one without memory, and a write needs a key.
  const auto key = engine_.memory().insert({.data = &empty_,
                                            .address = 0,
                                            .length = 1,
                                            .access = srd::Access::remote_write,
                                            .domain = domain_});
  if (!key) {
    return tl::unexpected(key.error());
  }
  empty_key_ = *key;
  const srd::EndpointConfig configs[kEndpoints] = {
      {.qkey = qkey_, .domain = 0, .receive_depth = kReceiveBuffers},
      {.qkey = qkey_, .domain = domain_, .receive_depth = 0, .unsolicited_immediate = true},
      {.qkey = qkey_, .domain = 0, .receive_depth = 0}};
  for (std::uint32_t i = 0; i < kEndpoints; ++i) {
    if (auto opened = engine_.open_endpoint(srd::Qpn{first_.value() + i}, configs[i]); !opened) {
      return opened;
    }
  }
  send_buffers_.resize(kSendBuffers * largest_);
  receive_buffers_.resize(kReceiveBuffers * largest_);
  receivers_.resize(kSendBuffers);
  for (std::uint32_t i = 0; i < kSendBuffers; ++i) {
    free_buffers_.push_back(kSendBuffers - 1 - i);
  }
  for (std::uint32_t i = 0; i < kReceiveBuffers; ++i) {
    post_receive(i);
  }
  return {};
}

void Links::close() {
  for (std::uint32_t i = 0; i < kEndpoints; ++i) {
    engine_.close_endpoint(srd::Qpn{first_.value() + i});
  }
  (void)engine_.memory().erase(empty_key_);
}

void Links::post_receive(std::uint32_t buffer) {
  srd::ReceiveRequest request;
  request.segments[0] = {receive_buffers_.data() + buffer * largest_,
                         static_cast<std::uint32_t>(largest_)};
  request.cookie = Cookie{Lane::control_receive, 0, buffer}.pack();
  (void)engine_.post_receive(control(), request);  // the depth is the number of buffers
}

// The buffer is free again when the message has been acknowledged or has failed (on_sent()).
std::optional<std::uint32_t> Links::post(const RemoteEnd& to, std::span<const std::byte> head,
                                         std::span<const std::byte> body, Cookie cookie,
                                         bool matters) {
  if (free_buffers_.empty()) {
    return std::nullopt;
  }
  const std::uint32_t buffer = free_buffers_.back();
  std::byte* const bytes = send_buffers_.data() + buffer * largest_;
  std::memcpy(bytes, head.data(), head.size());
  if (!body.empty()) {
    std::memcpy(bytes + head.size(), body.data(), body.size());
  }
  cookie.index |= buffer;
  srd::SendRequest request;
  request.peer = to.peer;
  request.source = control();
  request.destination = to.control;
  request.qkey = to.qkey;
  request.cookie = cookie.pack();
  request.segments[0] = {bytes, static_cast<std::uint32_t>(head.size() + body.size())};
  if (engine_.post(request) != srd::PostResult::accepted) {
    return std::nullopt;
  }
  receivers_[buffer] = matters ? std::optional(to) : std::nullopt;
  free_buffers_.pop_back();
  return buffer;
}

// For messages that the caller can repeat: nothing is stored.
std::optional<std::uint32_t> Links::try_send(const RemoteEnd& to,
                                             std::span<const std::byte> message) {
  return backlog_.empty() ? post(to, message, true) : std::nullopt;
}

bool Links::try_send_eager(const RemoteEnd& to, const EagerHeader& header,
                           std::span<const std::byte> bytes, std::uint16_t end) {
  const std::size_t peer = to.peer.value();
  if (eager_of_peer_.size() <= peer) {
    eager_of_peer_.resize(peer + 1);
  }
  if (!backlog_.empty() || sizeof header + bytes.size() > engine_.max_send_size() ||
      eager_ >= kMaxEagerBuffers || eager_of_peer_[peer] >= kMaxEagerOfPeer ||
      !post(to, std::as_bytes(std::span{&header, 1}), bytes,
            Cookie{Lane::eager, end, eager_index(header.control.sequence.value(), 0)}, true)) {
    return false;
  }
  ++eager_;
  ++eager_of_peer_[peer];
  return true;
}

std::optional<RemoteEnd> Links::on_eager_sent(std::uint32_t buffer) {
  const auto partner = on_sent(buffer);
  --eager_;
  --eager_of_peer_[partner->peer.value()];
  return partner;
}

void Links::send(const RemoteEnd& to, ControlHeader header, bool matters) {
  header.qkey = qkey_;
  if (!backlog_.empty() || !post(to, std::as_bytes(std::span{&header, 1}), matters)) {
    (void)backlog_.push({to, header, matters});
  }
}

void Links::retry() {
  while (!backlog_.empty()) {
    const Late& late = backlog_.front();
    if (!post(late.to, std::as_bytes(std::span{&late.header, 1}), late.matters)) {
      return;
    }
    backlog_.pop();
  }
}

std::optional<RemoteEnd> Links::on_sent(std::uint32_t buffer) {
  free_buffers_.push_back(buffer);
  return receivers_[buffer];
}

}  // namespace weft::nccl
