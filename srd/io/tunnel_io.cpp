// Owns the system calls of the tunnel, and which properties of a frame its datagram shows: the
// traffic class, and the flow, by the source port.
#include "srd/io/tunnel_io.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "srd/base/rng.hpp"
#include "srd/net/envelope.hpp"

namespace weft::srd {
namespace {

constexpr unsigned long kLastPort = 65535 - TunnelIo::kSenders;

// "address", "address:port" or "[address]:port".
bool read_endpoint(const std::string& text, sockaddr_storage& storage, socklen_t& size) {
  std::string address = text;
  unsigned long port = TunnelIo::kDefaultPort;
  const bool bracketed = !text.empty() && text.front() == '[';
  const std::size_t close = text.find(']');
  const std::size_t colon = bracketed ? text.find(':', close) : text.find(':');
  const bool plain_ipv6 = !bracketed && std::count(text.begin(), text.end(), ':') > 1;
  if (bracketed && close == std::string::npos) {
    return false;
  }
  if (colon != std::string::npos && !plain_ipv6) {
    char* end = nullptr;
    port = std::strtoul(text.c_str() + colon + 1, &end, 10);
    if (*end != '\0' || port == 0 || port > kLastPort) {
      return false;
    }
    address = text.substr(0, colon);
  }
  if (bracketed) {
    address = text.substr(1, close - 1);
  }
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(storage);
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(storage);
  if (::inet_pton(AF_INET, address.c_str(), &ipv4.sin_addr) == 1) {
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(static_cast<std::uint16_t>(port));
    size = sizeof ipv4;
    return true;
  }
  if (::inet_pton(AF_INET6, address.c_str(), &ipv6.sin6_addr) == 1) {
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(static_cast<std::uint16_t>(port));
    size = sizeof ipv6;
    return true;
  }
  return false;
}

void set_port(sockaddr_storage& storage, std::uint16_t port) {
  if (storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
  }
}

unsigned port_of(const sockaddr_storage& storage) {
  return ntohs(storage.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in&>(storage).sin_port
                   : reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
}

bool same_host(const sockaddr_storage& one, const sockaddr_storage& other) {
  if (one.ss_family != other.ss_family) {
    return false;
  }
  return one.ss_family == AF_INET
             ? reinterpret_cast<const sockaddr_in&>(one).sin_addr.s_addr ==
                   reinterpret_cast<const sockaddr_in&>(other).sin_addr.s_addr
             : std::memcmp(&reinterpret_cast<const sockaddr_in6&>(one).sin6_addr,
                           &reinterpret_cast<const sockaddr_in6&>(other).sin6_addr, 16) == 0;
}

// A hash of IP addresses and ports. Frames of one flow, or of one path of it, leave from the same
// socket, and so stay in order.
std::size_t flow_of(std::span<const std::byte> begin) {
  const bool ipv6 = begin.size() > 14 && begin[12] == std::byte{0x86};
  std::uint64_t hash = 0;
  // IP addresses and ports.
  for (std::size_t at = ipv6 ? 22 : 26;
       at + 2 <= std::min<std::size_t>(begin.size(), ipv6 ? 58 : 38); at += 2) {
    std::uint16_t word = 0;
    std::memcpy(&word, &begin[at], sizeof word);
    hash = mix64(hash ^ word);
  }
  return hash;
}

// The seed of a session must never repeat: 64 random bits of the system.
Result<TunnelSession> new_session(const JoinKey& key) {
  std::uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, 0) != static_cast<ssize_t>(sizeof seed)) {
    return fail(ErrorCode::io_error, errno_text("udp: random numbers"));
  }
  return TunnelSession(key, seed);
}

}  // namespace

TunnelIo::TunnelIo(const Config& config)
    : config_(config), buffer_(std::make_unique<std::byte[]>(kBurst * stride())) {}

Result<std::unique_ptr<TunnelIo>> TunnelIo::create(const Config& config) {
  std::unique_ptr<TunnelIo> io(new TunnelIo(config));
  if (config.key) {
    auto session = new_session(*config.key);
    if (!session) {
      return tl::unexpected(session.error());
    }
    io->session_.emplace(std::move(*session));
  }
  sockaddr_storage local{};
  socklen_t size = 0;
  if (!read_endpoint(config.local, local, size) ||
      !read_endpoint(config.remote, io->remote_, io->remote_size_) ||
      local.ss_family != io->remote_.ss_family) {
    return fail(ErrorCode::invalid_argument,
                "udp: give two addresses of one family, each maybe with a port up to " +
                    std::to_string(kLastPort) + ": '" + config.local + "', '" + config.remote +
                    "'");
  }
  io->ipv6_ = local.ss_family == AF_INET6;
  for (std::uint16_t i = 0; i <= kSenders; ++i) {
    const bool receives = i == 0;
    UniqueFd socket(::socket(local.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_storage own = local;
    set_port(own, static_cast<std::uint16_t>(port_of(local) + i));
    if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), size) != 0) {
      return fail(
          ErrorCode::io_error,
          errno_text("udp: address '" + config.local + "', port " + std::to_string(port_of(own))) +
              " (a tunnel takes " + std::to_string(kSenders + 1) + " ports in a row)");
    }
    const int one = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, receives ? SO_RCVBUF : SO_SNDBUF, &config.socket_bytes,
                 sizeof config.socket_bytes);
    ::setsockopt(socket.get(), io->ipv6_ ? IPPROTO_IPV6 : IPPROTO_IP,
                 io->ipv6_ ? IPV6_RECVTCLASS : IP_RECVTOS, &one, sizeof one);
    (receives ? io->receiver_ : io->senders_[i - 1U]) = std::move(socket);
  }
  io->greet();
  return io;
}

// The source ports of the other end: those that follow its own port.
bool TunnelIo::is_sender(const sockaddr_storage& source) const {
  const unsigned offset = port_of(source) - port_of(remote_) - 1U;
  return same_host(source, remote_) && offset < kSenders;
}

std::span<std::byte> TunnelIo::proved(std::span<std::byte> datagram) {
  std::span<const std::byte> inside;
  switch (session_->open(datagram, inside)) {
    case TunnelSession::Verdict::frame:
      return datagram.last(inside.size());
    case TunnelSession::Verdict::greeting:
      break;
    case TunnelSession::Verdict::refused:
      ++counters_.rx_unproved;
      break;
  }
  return {};
}

std::span<std::byte> TunnelIo::accept(std::size_t index) {
  msghdr& message = messages_[index].msg_hdr;
  std::span<std::byte> frame{buffer_.get() + index * stride(), messages_[index].msg_len};
  if (!is_sender(sources_[index]) || frame.size() == stride()) {
    ++counters_.rx_dropped;
    return {};
  }
  if (session_) {
    frame = proved(frame);
    if (frame.empty()) {
      return {};
    }
  }
  if (frame.size() < net::kEthernetSize) {
    ++counters_.rx_dropped;
    return {};
  }
  carry_mark(message, frame);
  return frame;
}

void TunnelIo::carry_mark(msghdr& message, std::span<std::byte> frame) {
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    int value = 0;
    std::memcpy(&value, CMSG_DATA(at), std::min(sizeof value, at->cmsg_len - CMSG_LEN(0)));
    const bool traffic_class = (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_TOS) ||
                               (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_TCLASS);
    if (traffic_class && (value & 3) == 3 && net::mark_congested(frame)) {
      ++counters_.rx_marked;
    }
  }
}

std::span<const RxFrame> TunnelIo::receive() {
  for (std::size_t i = 0; i < kBurst; ++i) {
    pieces_[i] = {buffer_.get() + i * stride(), stride()};
    messages_[i] = {};
    msghdr& message = messages_[i].msg_hdr;
    message.msg_name = &sources_[i];
    message.msg_namelen = sizeof sources_[i];
    message.msg_iov = &pieces_[i];
    message.msg_iovlen = 1;
    message.msg_control = controls_[i].data();
    message.msg_controllen = kControlBytes;
  }
  const int got = ::recvmmsg(receiver_.get(), messages_.data(), kBurst, MSG_DONTWAIT, nullptr);
  std::size_t count = 0;
  for (int i = 0; i < got; ++i) {
    const std::span<std::byte> frame = accept(static_cast<std::size_t>(i));
    if (!frame.empty()) {
      received_[count++] = frame;
      counters_.rx_bytes += frame.size();
    }
  }
  counters_.rx_frames += count;
  greet();
  return {received_.data(), count};
}

bool TunnelIo::send(std::size_t sender, std::span<iovec> pieces, int ip_class) {
  alignas(cmsghdr) std::array<char, kControlBytes> control{};
  msghdr message{};
  message.msg_name = &remote_;
  message.msg_namelen = remote_size_;
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(sizeof(int));
  cmsghdr* at = CMSG_FIRSTHDR(&message);
  at->cmsg_level = ipv6_ ? IPPROTO_IPV6 : IPPROTO_IP;
  at->cmsg_type = ipv6_ ? IPV6_TCLASS : IP_TOS;
  at->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(at), &ip_class, sizeof ip_class);
  return ::sendmsg(senders_[sender].get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

void TunnelIo::send(const TxFrame& frame) {
  TunnelSession::Header header;
  std::array<iovec, 5> pieces;
  std::size_t count = 0;
  if (session_) {
    if (!session_->established()) {
      session_->want_challenge();
      ++counters_.tx_lost;  // the other end would refuse it
      return;
    }
    header = session_->seal(frame.pieces);
    pieces[count++] = {header.data(), header.size()};
  }
  for (const auto& piece : frame.pieces) {
    if (!piece.empty()) {
      pieces[count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
    }
  }
  if (send(flow_of(frame.pieces[0]) % kSenders, std::span(pieces).first(count),
           static_cast<int>(net::traffic_class(frame.pieces[0])))) {
    ++counters_.tx_frames;
    counters_.tx_bytes += frame.size();
  } else {
    ++counters_.tx_lost;
  }
}

void TunnelIo::greet() {
  TunnelSession::Header greeting;
  while (session_ && session_->has_greeting() && session_->next_greeting(clock_now(), greeting)) {
    iovec piece{greeting.data(), greeting.size()};
    // A greeting that is lost is not repeated by itself: the next frame finds no challenge either
    // and asks again.
    [[maybe_unused]] const bool sent = send(0, {&piece, 1}, 0);
  }
}

std::size_t TunnelIo::transmit(std::span<const TxFrame> frames) {
  for (const TxFrame& frame : frames) {
    if (frame.size() > config_.max_frame) {
      ++counters_.tx_oversize;
    } else {
      send(frame);
    }
  }
  greet();
  return frames.size();
}

bool TunnelIo::arm() {
  greet();
  if (session_ && session_->has_greeting()) {
    return false;  // it waits some milliseconds for its turn
  }
  pollfd fd{receiver_.get(), POLLIN, 0};
  return ::poll(&fd, 1, 0) == 0;
}

}  // namespace weft::srd
