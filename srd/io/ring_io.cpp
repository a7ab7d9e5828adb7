// Owns the data path over rings, and going to sleep on them.
#include "srd/io/ring_io.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "srd/base/lent_memory.hpp"
#include "srd/io/dscp.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {
namespace {

// The keeper notices that the other end has died. Asking it costs a system call, so a port that is
// polled does it once in so many polls. A poll that found nothing counts for several: there is time
// then, and polls may be rare.
constexpr std::uint32_t kPollsPerAttention = 4096;
constexpr std::uint32_t kIdlePollCounts = 64;

Result<void> watch_edges(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;  // edges: a bell that stays rung, or a dead one, wakes once
  event.data.fd = fd;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
    return fail(ErrorCode::out_of_resources, errno_text("ring: epoll_ctl"));
  }
  return {};
}

// By hand: after a fork the descriptor lives on in the child, and epoll would not forget it.
void unwatch(int epoll, int fd) { ::epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr); }

// [wire 3.1]
AttachmentId destination_of(const TxPacket& packet) {
  const std::byte* at = packet.header.data() + wire::kDestinationAttachmentOffset;
  return AttachmentId{static_cast<std::uint16_t>(std::to_integer<unsigned>(at[0]) << 8 |
                                                 std::to_integer<unsigned>(at[1]))};
}

bool is_from(const RingIo::Peer& peer, const net::Envelope& envelope) {
  wire::CommonHeader header;
  return envelope.source() == peer.address && wire::load(envelope.packet(), header) &&
         header.source_attachment.value() == peer.attachment.value() &&
         header.source_life.value() == peer.life.value();
}

std::size_t max_frame_of(std::size_t mtu) { return net::kEnvelopeSizeV6 + mtu; }

}  // namespace

Result<std::unique_ptr<RingIo>> RingIo::create(const Config& config, RingPort uplink) {
  const auto envelope = net::EnvelopeWriter::make(config.own);
  if (!envelope) {
    return tl::unexpected(envelope.error());
  }
  UniqueFd wait(::epoll_create1(EPOLL_CLOEXEC));
  if (!wait) {
    return fail(ErrorCode::out_of_resources, errno_text("ring: epoll_create1"));
  }
  std::unique_ptr<RingIo> io(new RingIo(config, *envelope, std::move(wait)));
  if (auto placed = io->replace_uplink(std::move(uplink)); !placed) {
    return tl::unexpected(placed.error());
  }
  return io;
}

Result<RingIo::Pair> RingIo::create_pair(const Config& first, const Config& second,
                                         std::size_t ring_bytes) {
  auto memory = RingPort::create_memory(ring_bytes);
  if (!memory) {
    return tl::unexpected(memory.error());
  }
  auto bells = Bell::create_pair();
  if (!bells) {
    return tl::unexpected(bells.error());
  }
  const auto open = [&](const Config& config, int end,
                        Bell bell) -> Result<std::unique_ptr<RingIo>> {
    auto port =
        RingPort::open(memory->get(), ring_bytes, end, max_frame_of(config.mtu), std::move(bell));
    if (!port) {
      return tl::unexpected(port.error());
    }
    return create(config, std::move(*port));
  };
  auto one = open(first, 0, std::move(bells->first));
  auto other = open(second, 1, std::move(bells->second));
  if (!one || !other) {
    return tl::unexpected(one ? other.error() : one.error());
  }
  return Pair{std::move(*one), std::move(*other)};
}

IoCapabilities RingIo::capabilities() const {
  return {.mtu = config_.mtu,
          .burst = kBurst,
          .lossless_memory = true,
          .reads_ecn = true,
          .writes_ecn = true,
          .network = config_.network};
}

template <class F>
void RingIo::for_each_port(F&& f) {
  f(uplink_);
  for (auto& direct : direct_) {
    f(direct->port);
  }
}

void RingIo::attend() {
  const Uncancellable here;
  if (!armed_) {  // else these edges are the sleepers'
    hear_edges();
  }
  until_attend_ = kPollsPerAttention;
  if (keeper_ != nullptr) {
    keeper_->attend(*this);
  }
  drop_broken_ports();
}

// Round by round a share of every port, so that none can starve the others: first of the one to
// weftd, behind which there may be many, then of the others from where the last burst ended.
std::span<const RxPacket> RingIo::receive() {
  if (until_attend_-- == 0 || uplink_.rx().take_notice()) [[unlikely]] {
    attend();
  }
  received_count_ = 0;
  std::size_t left = kBurst;
  for (bool more = true; more && left > 0;) {
    std::size_t taken = take_share(uplink_, nullptr, left);
    left -= taken;
    more = taken == kShare;
    for (std::size_t i = 0; i < direct_.size() && left > 0; ++i) {
      if (++next_direct_ >= direct_.size()) {
        next_direct_ = 0;
      }
      Direct& direct = *direct_[next_direct_];
      taken = take_share(direct.port, &direct.peer, left);
      left -= taken;
      more = more || taken == kShare;
    }
  }
  if (received_count_ == 0) {
    until_attend_ -= std::min(until_attend_, kIdlePollCounts);
  }
  return {received_.data(), received_count_};
}

// Returns how many records it took, good or bad: it is they who cost time.
std::size_t RingIo::take_share(RingPort& port, const Peer* peer, std::size_t most) {
  const std::size_t share = std::min(kShare, most);
  std::size_t taken = 0;
  for (; taken < share; ++taken) {
    RecordInfo info;
    const auto frame = port.rx().next(info);
    if (frame.empty()) {
      if (port.rx().broken()) [[unlikely]] {
        until_attend_ = 0;
      }
      break;
    }
    accept(frame, info, peer);
  }
  return taken;
}

void RingIo::accept(std::span<const std::byte> frame, const RecordInfo& info, const Peer* peer) {
  const auto envelope = net::Envelope::parse(frame);
  if (!envelope.ok() || envelope.destination() != config_.own) [[unlikely]] {
    ++counters_.rx_malformed;
    return;
  }
  if (peer != nullptr && !is_from(*peer, envelope)) [[unlikely]] {
    ++counters_.rx_forged;
    return;
  }
  RxPacket& packet = received_[received_count_++];
  packet.from = envelope.source();
  packet.path = envelope.path();
  packet.ecn = envelope.ecn();
  packet.trimmed = envelope.trimmed();
  packet.bytes = envelope.packet();
  packet.more = {};
  packet.arrived = (info.flags & kRecordArrival) != 0 ? time_at(Duration{info.time}) : kNever;
  ++counters_.rx_packets;
  counters_.rx_bytes += packet.bytes.size();
}

void RingIo::release() {
  for_each_port([](RingPort& port) { port.rx().release(); });
}

RingIo::Route RingIo::route(const TxPacket& packet) {
  if (!direct_.empty() && packet.header_size >= sizeof(wire::CommonHeader)) {
    const AttachmentId attachment = destination_of(packet);
    const auto leads_there = [&](const Direct& direct) {
      return direct.peer.attachment == attachment && direct.peer.address == packet.to &&
             !direct.ended;
    };
    if (last_route_ != nullptr && leads_there(*last_route_)) {
      return {&last_route_->port, &last_route_->stall};
    }
    for (auto& direct : direct_) {
      if (leads_there(*direct)) {
        last_route_ = direct.get();
        return {&direct->port, &direct->stall};
      }
    }
  }
  return uplink_open_ ? Route{&uplink_, &uplink_stall_} : Route{};
}

bool RingIo::send_one(RingPort& port, const TxPacket& packet) {
  const std::size_t envelope = envelope_.size();
  const std::size_t size = packet.size();
  std::byte* frame = port.tx().reserve(envelope + size);
  if (frame == nullptr) {
    return false;
  }
  // From the end to the beginning: the consumer watches the first line. The payload's first of two
  // copies; place.hpp has the second.
  std::byte* to = frame + envelope + packet.header_size;
  for (const auto& piece : packet.payload) {
    if (!piece.empty()) {
      if (!touch_lent(piece.data(), piece.size(), [&] { port.tx().copy(to, piece); }))
          [[unlikely]] {
        ++counters_.tx_unreadable;
        return true;
      }
      to += piece.size();
    }
  }
  std::memcpy(frame + envelope, packet.header.data(), packet.header_size);
  if (!envelope_.write(frame, packet.to, packet.path, packet.ecn, dscp_of(packet), size)) {
    ++counters_.tx_unroutable;
    return true;
  }
  port.tx().commit(envelope + size, {.flags = kRecordUnchecked, .time = nanoseconds(packet.when)});
  ++counters_.tx_packets;
  counters_.tx_bytes += size;
  return true;
}

std::size_t RingIo::transmit(std::span<const TxPacket> packets) {
  std::size_t taken = 0;
  RingPort* previous = nullptr;
  for (const TxPacket& packet : packets) {
    const auto [port, stall] = route(packet);
    if (port == nullptr || port->broken()) [[unlikely]] {
      ++counters_.tx_unroutable;
    } else if (packet.size() > config_.mtu) [[unlikely]] {
      ++counters_.tx_oversize;
    } else {
      if (port != previous && previous != nullptr) {
        previous->notify_peer();
      }
      previous = port;
      if (!send_one(*port, packet)) {
        if (port->broken()) {
          until_attend_ = 0;
          break;
        }
        if (taken >= promised_ && !given_up(*port, *stall)) {
          break;
        }
        ++counters_.tx_stalled;
      }
    }
    ++taken;
  }
  if (previous != nullptr) {
    previous->notify_peer();
  }
  promised_ = 0;
  return taken;
}

// Of a ring that is full: whether its reader has had its time.
bool RingIo::given_up(RingPort& port, ReaderStall& stall) const {
  const std::uint64_t position = port.tx().consumed();
  if (stall.still_given_up(position)) {
    return true;
  }
  return &stall == &uplink_stall_
             ? stall.given_up(clock_now(), position, 1, config_.uplink_patience)
             : stall.given_up(clock_now(), position, port.tx().capacity(), config_.patience);
}

std::size_t RingIo::room_in(RingPort& port, ReaderStall& stall) const {
  const std::size_t room = port.tx().room(kBurst, max_frame_of(config_.mtu));
  if (room > 0) [[likely]] {
    stall.over();
    return room;
  }
  return port.broken() || given_up(port, stall) ? kBurst : 0;
}

std::size_t RingIo::transmit_room() {
  std::size_t room = uplink_open_ ? room_in(uplink_, uplink_stall_) : kBurst;
  for (auto& direct : direct_) {
    if (!direct->ended && room > 0) {
      room = std::min(room, room_in(direct->port, direct->stall));
    }
  }
  promised_ = room;
  return room;
}

bool RingIo::arm() {
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

// Whoever adds a port may do so while another thread sleeps. What lies in the port already is found
// by the look that follows.
void RingIo::join_sleep(RingPort& port) const {
  if (armed_) {
    port.rx().set_asleep(true);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}

void RingIo::disarm() {
  if (!armed_) {
    return;
  }
  armed_ = false;
  for_each_port([](RingPort& port) { port.rx().set_asleep(false); });
  const Uncancellable here;
  hear_edges();
}

void RingIo::hear_edges() {
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

// Nobody holds the other end of that bell: the peer could not take its end of the ring, having no
// descriptor left, or has closed it. What goes there would be read by nobody.
void RingIo::end_direct(int bell) {
  last_route_ = nullptr;
  for (auto& direct : direct_) {
    if (direct->port.bell().fd() == bell) {
      direct->ended = true;
      until_attend_ = 0;
    }
  }
}

void RingIo::hear(int fd) {
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

void RingIo::set_keeper(std::unique_ptr<PortKeeper> keeper) {
  keeper_ = std::move(keeper);
  until_attend_ = 0;
}

Result<void> RingIo::watch(int fd) { return watch_edges(wait_.get(), fd); }

bool RingIo::add_direct(const Peer& peer, RingPort port) {
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

void RingIo::remove_direct(const Address& peer, AttachmentId attachment) {
  last_route_ = nullptr;
  for (auto& direct : direct_) {
    direct->ended |= direct->peer.attachment == attachment && direct->peer.address == peer;
  }
}

void RingIo::remove_all_direct() {
  last_route_ = nullptr;
  std::erase_if(direct_, [&](const auto& direct) {
    unwatch(wait_.get(), direct->port.bell().fd());
    return true;
  });
}

Result<void> RingIo::replace_uplink(RingPort uplink) {
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

void RingIo::drop_broken_ports() {
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
    until_attend_ = 1;  // after what is left has been received
  }
}

}  // namespace weft::srd
