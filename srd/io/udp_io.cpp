// Owns the system calls of UDP: batches, segmentation by the kernel, and marks in control messages.
#include "srd/io/udp_io.hpp"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace weft::srd {
namespace {

constexpr std::uint32_t kMaxSend = 65000;

sockaddr_storage socket_address(const Address& address, std::uint16_t port, socklen_t& size) {
  sockaddr_storage storage{};
  if (address.is_v4()) {
    auto& ipv4 = reinterpret_cast<sockaddr_in&>(storage);
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    std::memcpy(&ipv4.sin_addr, address.v4_bytes().data(), 4);
    size = sizeof ipv4;
  } else {
    auto& ipv6 = reinterpret_cast<sockaddr_in6&>(storage);
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    std::memcpy(&ipv6.sin6_addr, address.bytes.data(), 16);
    size = sizeof ipv6;
  }
  return storage;
}

std::uint16_t read_source(const sockaddr_storage& storage, Address& address) {
  if (storage.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(storage);
    address = Address::v4(reinterpret_cast<const std::byte*>(&ipv4.sin_addr));
    return ntohs(ipv4.sin_port);
  }
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(storage);
  std::memcpy(address.bytes.data(), &ipv6.sin6_addr, 16);
  return ntohs(ipv6.sin6_port);
}

bool set_int(int fd, int level, int option, int value) {
  return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
}

// The kernel stamps packets with the time of day, while Machines use the monotonic clock. So a
// stamp is read as an age, which is subtracted from the monotonic time.
class KernelClock {
 public:
  KernelClock() : now_(clock_now()) {
    timespec time{};
    ::clock_gettime(CLOCK_REALTIME, &time);
    time_of_day_ = nanoseconds_of(time);
  }
  [[nodiscard]] TimePoint moment_of(cmsghdr& stamp) const {
    timespec time{};
    std::memcpy(&time, CMSG_DATA(&stamp), sizeof time);
    return now_ - Duration{time_of_day_ - nanoseconds_of(time)};
  }

 private:
  static std::int64_t nanoseconds_of(const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }

  TimePoint now_;
  std::int64_t time_of_day_ = 0;
};

template <class Value>
cmsghdr* append(msghdr& message, cmsghdr* at, int level, int type, Value value) {
  at->cmsg_level = level;
  at->cmsg_type = type;
  at->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(at), &value, sizeof value);
  message.msg_controllen += CMSG_SPACE(sizeof value);
  return reinterpret_cast<cmsghdr*>(reinterpret_cast<char*>(at) + CMSG_SPACE(sizeof value));
}

}  // namespace

UdpSockets::UdpSockets(const Config& config, const net::UdpPorts& ports)
    : config_(config),
      ports_(ports),
      ipv6_(!config.own.is_v4()),
      buffer_(kDatagrams * kDatagramBytes) {}

Result<void> UdpSockets::open() {
  if (config_.paths == 0 || config_.paths > ports_.paths || config_.mtu < 256 ||
      config_.mtu > kMaxSend) {
    return fail(ErrorCode::invalid_argument, "udp: give 1 to " + std::to_string(ports_.paths) +
                                                 " paths and an MTU of 256 to 65000 bytes");
  }
  auto receiver = open_socket(ports_.destination, true);
  if (!receiver) {
    return tl::unexpected(receiver.error());
  }
  receiver_ = std::move(*receiver);
  waiter_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event none{};
  if (!waiter_ || ::epoll_ctl(waiter_.get(), EPOLL_CTL_ADD, receiver_.get(), &none) != 0) {
    return fail(ErrorCode::out_of_resources, errno_text("udp: epoll"));
  }
  for (std::uint16_t path = 0; path < config_.paths; ++path) {
    auto sender = open_socket(static_cast<std::uint16_t>(ports_.first_source + path), false);
    if (!sender) {
      return tl::unexpected(sender.error());
    }
    senders_.push_back(std::move(*sender));
  }
  return {};
}

Result<UniqueFd> UdpSockets::open_socket(std::uint16_t port, bool receives) const {
  UniqueFd fd(::socket(ipv6_ ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  socklen_t size = 0;
  const sockaddr_storage own = socket_address(config_.own, port, size);
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), size) != 0) {
    return fail(errno == EADDRINUSE ? ErrorCode::already_exists : ErrorCode::io_error,
                errno_text("udp: port " + std::to_string(port) +
                           " of the NIC's address (each address serves one process)"));
  }
  set_int(fd.get(), SOL_SOCKET, receives ? SO_RCVBUF : SO_SNDBUF, config_.socket_bytes);
  if (receives) {
    // All optional. Without UDP_GRO receiving is slower, without the time stamp a wait for a core
    // counts as time in the network, without the traffic class congestion marks are not seen.
    set_int(fd.get(), SOL_UDP, UDP_GRO, 1);
    set_int(fd.get(), SOL_SOCKET, SO_TIMESTAMPNS, 1);
    if (ipv6_) {
      set_int(fd.get(), IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    } else {
      set_int(fd.get(), IPPROTO_IP, IP_RECVTOS, 1);
    }
  } else if (ipv6_) {
    set_int(fd.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
  } else {
    set_int(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  }
  return fd;
}

IoCapabilities UdpSockets::capabilities() const {
  return {.mtu = config_.mtu,
          .burst = kBurst,
          .lossless_memory = false,
          .reads_ecn = true,
          .writes_ecn = true,
          .paths = config_.paths,
          .path_run = kMaxSend};
}

void UdpSockets::refill() {
  if (cursor_.datagram >= cursor_.count) {
    fill();
  }
}

void UdpSockets::fill() {
  for (std::size_t i = 0; i < kDatagrams; ++i) {
    pieces_[i] = {buffer_.data() + i * kDatagramBytes, kDatagramBytes};
    messages_[i] = {};
    msghdr& message = messages_[i].msg_hdr;
    message.msg_name = &sources_[i];
    message.msg_namelen = sizeof sources_[i];
    message.msg_iov = &pieces_[i];
    message.msg_iovlen = 1;
    message.msg_control = controls_[i].data();
    message.msg_controllen = kControlBytes;
  }
  const int count =
      ::recvmmsg(receiver_.get(), messages_.data(), kDatagrams, MSG_DONTWAIT, nullptr);
  cursor_ = {0, count > 0 ? static_cast<std::size_t>(count) : 0, 0};
  if (cursor_.count == 0) {
    return;
  }
  const KernelClock kernel;
  for (std::size_t i = 0; i < cursor_.count; ++i) {
    Datagram& datagram = datagrams_[i];
    const unsigned port = read_source(sources_[i], datagram.from);
    // A smaller port becomes a huge unsigned number.
    datagram.valid = port - ports_.first_source < ports_.paths &&
                     (messages_[i].msg_hdr.msg_flags & MSG_TRUNC) == 0;
    datagram.path = PathId{static_cast<std::uint16_t>(port - ports_.first_source)};
    datagram.ecn = Ecn::not_capable;
    datagram.dscp = 0;
    datagram.size = messages_[i].msg_len;
    datagram.segment = datagram.size;
    datagram.arrived = kNever;
    msghdr& message = messages_[i].msg_hdr;
    for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
      if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_TIMESTAMPNS) {
        datagram.arrived = kernel.moment_of(*at);
        continue;
      }
      int value = 0;
      std::memcpy(&value, CMSG_DATA(at), std::min(sizeof value, at->cmsg_len - CMSG_LEN(0)));
      if (at->cmsg_level == SOL_UDP && at->cmsg_type == UDP_GRO && value > 0) {
        datagram.segment = static_cast<std::size_t>(value);
      } else if ((at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_TOS) ||
                 (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_TCLASS)) {
        datagram.ecn = static_cast<Ecn>(value & 3);
        datagram.dscp = static_cast<std::uint8_t>(value >> 2);
      }
    }
  }
}

bool UdpSockets::take_next(RxPacket& packet, std::uint8_t& dscp) {
  while (cursor_.datagram < cursor_.count) {
    const Datagram& datagram = datagrams_[cursor_.datagram];
    if (!datagram.valid || cursor_.offset >= datagram.size) {
      counters_.rx_malformed += datagram.valid && datagram.size != 0 ? 0 : 1;
      ++cursor_.datagram;
      cursor_.offset = 0;
      continue;
    }
    const std::size_t size = std::min(datagram.segment, datagram.size - cursor_.offset);
    packet.from = datagram.from;
    packet.path = datagram.path;
    packet.ecn = datagram.ecn;
    dscp = datagram.dscp;
    packet.arrived = datagram.arrived;
    packet.bytes = {buffer_.data() + cursor_.datagram * kDatagramBytes + cursor_.offset, size};
    packet.more = {};
    cursor_.offset += size;
    ++counters_.rx_packets;
    counters_.rx_bytes += size;
    return true;
  }
  return false;
}

void UdpSockets::release() {}

bool UdpSockets::arm() {
  pollfd fd{receiver_.get(), POLLIN, 0};
  if (cursor_.datagram < cursor_.count || ::poll(&fd, 1, 0) != 0) {
    disarm();
    return false;
  }
  return watch(true);  // a datagram that has come since makes the waiter readable
}

void UdpSockets::disarm() { (void)watch(false); }

bool UdpSockets::watch(bool armed) {
  if (armed_ != armed) {
    epoll_event event{.events = armed ? EPOLLIN : 0U, .data = {}};
    if (::epoll_ctl(waiter_.get(), EPOLL_CTL_MOD, receiver_.get(), &event) != 0) {
      return false;
    }
    armed_ = armed;
  }
  return true;
}

bool UdpSockets::goes_with(const Waiting& first, const Waiting& other) {
  const TxPacket& a = *first.packet;
  const TxPacket& b = *other.packet;
  return a.path == b.path && a.ecn == b.ecn && a.to == b.to && first.dscp == other.dscp;
}

std::size_t UdpSockets::send(std::span<const TxPacket> packets,
                             std::span<const std::uint8_t> dscp) {
  std::array<Waiting, kTransmitBurst> waiting;
  std::size_t count = 0;
  for (std::size_t i = 0; i < packets.size(); ++i) {
    const TxPacket& packet = packets[i];
    if (packet.size() > config_.mtu) {
      ++counters_.tx_oversize;
    } else if (packet.to.is_v4() == ipv6_ || packet.path.value() >= config_.paths) {
      ++counters_.tx_unroutable;
    } else {
      waiting[count++] = {&packet, dscp[i]};
    }
  }
  // Each pass takes out one run: the first packet and the later ones that go the same way, which
  // the kernel cuts again at the first one's size. So all have that size, except that the last may
  // be shorter, which closes the run. A packet of the same way that does not fit closes it too,
  // because a later one must not overtake it.
  while (count > 0) {
    std::array<Waiting, kMaxSegments> run;
    std::size_t length = 0;
    std::size_t bytes = 0;
    std::size_t kept = 0;
    bool closed = false;
    for (std::size_t i = 0; i < count; ++i) {
      const Waiting next = waiting[i];
      const std::size_t size = next.packet->size();
      const bool fits = length == 0 || (!closed && goes_with(run[0], next) &&
                                        size <= run[0].packet->size() && bytes + size <= kMaxSend);
      if (!fits) {
        waiting[kept++] = next;
        closed = closed || (length != 0 && goes_with(run[0], next));
        continue;
      }
      closed = length != 0 && size < run[0].packet->size();
      run[length++] = next;
      bytes += size;
    }
    count = kept;
    send_run({run.data(), length});
  }
  return packets.size();
}

void UdpSockets::send_run(std::span<const Waiting> run) {
  const TxPacket& first = *run[0].packet;
  std::array<iovec, 3 * kMaxSegments> pieces;
  std::size_t count = 0;
  std::size_t bytes = 0;
  for (const auto& [packet, dscp] : run) {
    pieces[count++] = {const_cast<std::byte*>(packet->header.data()), packet->header_size};
    for (const auto& piece : packet->payload) {
      if (!piece.empty()) {
        pieces[count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
      }
    }
    bytes += packet->size();
  }
  socklen_t size = 0;
  sockaddr_storage to = socket_address(first.to, ports_.destination, size);
  alignas(cmsghdr) std::array<char, kControlBytes> control{};
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = size;
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  message.msg_control = control.data();
  auto* at = reinterpret_cast<cmsghdr*>(control.data());
  const int ip_class = run[0].dscp << 2 | static_cast<int>(first.ecn);
  at = append(message, at, ipv6_ ? IPPROTO_IPV6 : IPPROTO_IP, ipv6_ ? IPV6_TCLASS : IP_TOS,
              ip_class);
  if (run.size() > 1) {
    append(message, at, SOL_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(first.size()));
  }
  const UniqueFd& sender = senders_[first.path.value()];
  if (::sendmsg(sender.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
    counters_.tx_packets += run.size();
    counters_.tx_bytes += bytes;
  } else if (errno == EMSGSIZE && run.size() == 1) {
    ++counters_.tx_oversize;
  } else if (run.size() > 1 &&
             (errno == EINVAL || errno == EMSGSIZE || errno == EIO || errno == EFAULT)) {
    for (const Waiting& packet : run) {  // the route cannot segment, or one packet is at fault
      send_run({&packet, 1});
    }
  } else if (errno == EFAULT) {
    ++counters_.tx_unreadable;
  } else {
    counters_.tx_lost += run.size();
  }
}

}  // namespace weft::srd
