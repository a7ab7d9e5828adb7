// Owns adding and removing rings, and sleeping on them.
#include "srd/io/ring_ports.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>

namespace weft::srd {
namespace {

// The keeper notices that the other end has died. Asking it costs a system call, so it is asked
// once in this many polls.
constexpr std::uint32_t kPollsPerAttention = 4096;

Result<void> watch_edges(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;  // edges: a bell that stays rung, or a dead one, wakes once
  event.data.fd = fd;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
    return fail(ErrorCode::out_of_resources, errno_text("ring: epoll_ctl"));
  }
  return {};
}

// Closing the descriptor would not be enough: epoll forgets it only when it is closed everywhere,
// and after a fork the child has it too.
void unwatch(int epoll, int fd) { ::epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr); }

}  // namespace

Result<UniqueFd> RingPorts::create_wait() {
  UniqueFd wait(::epoll_create1(EPOLL_CLOEXEC));
  if (!wait) {
    return fail(ErrorCode::out_of_resources, errno_text("ring: epoll_create1"));
  }
  return wait;
}

Result<std::pair<RingPort, RingPort>> RingPorts::joined_ports(std::size_t ring_bytes,
                                                              std::size_t first_frame,
                                                              std::size_t second_frame) {
  auto memory = RingPort::create_memory(ring_bytes);
  if (!memory) {
    return tl::unexpected(memory.error());
  }
  auto bells = Bell::create_pair();
  if (!bells) {
    return tl::unexpected(bells.error());
  }
  auto one = RingPort::open(memory->get(), ring_bytes, 0, first_frame, std::move(bells->first));
  auto other = RingPort::open(memory->get(), ring_bytes, 1, second_frame, std::move(bells->second));
  if (!one || !other) {
    return tl::unexpected(one ? other.error() : one.error());
  }
  return std::pair{std::move(*one), std::move(*other)};
}

IoCapabilities RingPorts::capabilities_with(std::uint16_t paths) const {
  return {.mtu = config_.mtu,
          .burst = kBurst,
          .lossless_memory = true,
          .reads_ecn = true,
          .writes_ecn = true,
          .paths = paths,
          .network = config_.network};
}

template <class F>
void RingPorts::for_each_port(F&& f) {
  f(uplink_);
  for (auto& direct : direct_) {
    f(direct->port);
  }
}

// What is due now and then, outside of the data path: edges that no sleeper has taken, the keeper's
// changes to the ports, and ports that broke.
void RingPorts::attend() {
  const Uncancellable here;
  if (!armed_) {  // else the edges are there to wake a sleeper
    hear_edges();
  }
  until_attend_ = kPollsPerAttention;
  if (keeper_ != nullptr) {
    keeper_->attend(*this);
  }
  drop_broken_ports();
}

void RingPorts::release() {
  for_each_port([](RingPort& port) { port.rx().release(); });
}

// Whether the reader of a full ring has used up its time. For weftd, a single byte taken earns all
// of it back: only a weftd that takes nothing at all counts as stopped.
bool RingPorts::given_up(RingPort& port, ReaderStall& stall) const {
  const std::uint64_t position = port.tx().consumed();
  if (stall.still_given_up(position)) {
    return true;
  }
  return &stall == &uplink_stall_
             ? stall.given_up(clock_now(), position, 1, config_.uplink_patience)
             : stall.given_up(clock_now(), position, port.tx().capacity(), config_.patience);
}

std::size_t RingPorts::room_in(RingPort& port, ReaderStall& stall) const {
  const std::size_t room = port.tx().room(kBurst, net::max_frame_for(config_.mtu));
  if (room > 0) [[likely]] {
    stall.over();
    return room;
  }
  return port.broken() || given_up(port, stall) ? kBurst : 0;
}

// The Machine does not say beforehand where its packets go, so the fullest ring decides.
std::size_t RingPorts::transmit_room() {
  std::size_t room = uplink_open_ ? room_in(uplink_, uplink_stall_) : kBurst;
  for (auto& direct : direct_) {
    if (!direct->ended && room > 0) {
      room = std::min(room, room_in(direct->port, direct->stall));
    }
  }
  promised_ = room;
  return room;
}

// First declare, then look: a producer that published before the fence is seen by empty(), and one
// that publishes later sees `asleep` and rings (RingProducer::must_ring()).
bool RingPorts::arm() {
  armed_ = true;
  for_each_port([](RingPort& port) { port.rx().set_asleep(true); });
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool quiet = true;
  for_each_port([&](RingPort& port) { quiet = quiet && (port.rx().empty() || port.broken()); });
  if (!quiet) {
    disarm();
  }
  return quiet;
}

// A port may be added while another thread sleeps on the others. What the new port holds already is
// found by the receive() during which it is added.
void RingPorts::join_sleep(RingPort& port) const {
  if (armed_) {
    port.rx().set_asleep(true);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}

void RingPorts::disarm() {
  if (!armed_) {
    return;
  }
  armed_ = false;
  for_each_port([](RingPort& port) { port.rx().set_asleep(false); });
  const Uncancellable here;
  hear_edges();
}

// Takes the edges that are there, without waiting.
void RingPorts::hear_edges() {
  std::array<epoll_event, 16> events;
  const int count = ::epoll_wait(wait_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if ((event.events & EPOLLHUP) != 0) {
      end_direct(event.data.fd);
    }
    hear(event.data.fd);
  }
}

// No process holds the other end of that bell: the peer could not take its end of the ring, having
// no descriptor left, or has closed it. Packets sent there would never be read.
void RingPorts::end_direct(int bell) {
  last_route_ = nullptr;
  for (auto& direct : direct_) {
    if (direct->port.bell().fd() == bell) {
      direct->ended = true;
      until_attend_ = 0;
    }
  }
}

// A good bell only has to be cleared: the next poll reads its ring. Anything else, the keeper's
// socket or a misused bell, is a reason to attend().
void RingPorts::hear(int fd) {
  bool is_good_bell = false;
  for_each_port([&](RingPort& port) {
    if (port.bell().fd() == fd) {
      is_good_bell = port.bell().clear();
      if (!is_good_bell) {
        port.cut_off();
      }
    }
  });
  if (!is_good_bell) {
    until_attend_ = 0;
  }
}

void RingPorts::set_keeper(std::unique_ptr<PortKeeper> keeper) {
  keeper_ = std::move(keeper);
  until_attend_ = 0;
}

Result<void> RingPorts::watch(int fd) { return watch_edges(wait_.get(), fd); }

// A former port to the same attachment is ended first; ports that have ended do not count towards
// the limit.
bool RingPorts::add_direct(const Peer& peer, RingPort port) {
  remove_direct(peer.address, peer.attachment);
  const auto living = std::count_if(direct_.begin(), direct_.end(),
                                    [](const auto& direct) { return !direct->ended; });
  if (static_cast<std::size_t>(living) >= kMaxDirectPorts) {
    return false;
  }
  if (!watch(port.bell().fd())) {
    return false;
  }
  join_sleep(port);
  direct_.push_back(std::make_unique<Direct>(Direct{peer, std::move(port), {}, false}));
  return true;
}

void RingPorts::remove_direct(const Address& peer, AttachmentId attachment) {
  last_route_ = nullptr;
  for (auto& direct : direct_) {
    direct->ended |= direct->peer.attachment == attachment && direct->peer.address == peer;
  }
}

void RingPorts::remove_all_direct() {
  last_route_ = nullptr;
  std::erase_if(direct_, [&](const auto& direct) {
    unwatch(wait_.get(), direct->port.bell().fd());
    return true;
  });
}

// After a fork or a restart of weftd. The former uplink's mapping goes with it: what was in it is
// lost.
Result<void> RingPorts::replace_uplink(RingPort uplink) {
  if (auto watched = watch(uplink.bell().fd()); !watched) {
    return watched;
  }
  unwatch(wait_.get(), uplink_.bell().fd());
  join_sleep(uplink);
  uplink_ = std::move(uplink);
  uplink_stall_ = {};
  uplink_open_ = true;
  return {};
}

// Also drops ports that have ended and are read to their end.
void RingPorts::drop_broken_ports() {
  if (uplink_open_ && uplink_.broken()) {
    uplink_open_ = false;
    ++counters_.ports_broken;
  }
  last_route_ = nullptr;
  std::erase_if(direct_, [&](const auto& direct) {
    const bool broken = direct->port.broken();
    const bool gone = broken || (direct->ended && direct->port.rx().empty());
    counters_.ports_broken += broken ? 1 : 0;
    if (gone) {
      unwatch(wait_.get(), direct->port.bell().fd());
    }
    return gone;
  });
  if (std::any_of(direct_.begin(), direct_.end(),
                  [](const auto& direct) { return direct->ended; })) {
    until_attend_ = 1;  // look again after the next receive() has taken what is left
  }
}

}  // namespace weft::srd
