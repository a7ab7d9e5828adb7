// Owns the data path over rings, and going to sleep on them.
#include "srd/io/ring_io.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "srd/io/dscp.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {
namespace {

// A polling process learns of its daemon's death by looking at the socket once in so many polls.
// How often a busy port looks at its keeper, which costs a system call; and how many polls one
// counts for that found nothing: there is time then, and polls may be rare.
constexpr std::uint32_t kPollsPerAttention = 4096;
constexpr std::uint32_t kIdlePollCounts = 64;

Result<void> watch_edges(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;  // edges: nobody ever has to read a doorbell
  event.data.fd = fd;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
    return fail(ErrorCode::out_of_resources, errno_text("ring: epoll_ctl"));
  }
  return {};
}

// [wire 3.1]
AttachmentId destination_of(const TxPacket& packet) {
  const std::byte* at = packet.header.data() + wire::kDestinationAttachmentOffset;
  return AttachmentId{static_cast<std::uint16_t>(std::to_integer<unsigned>(at[0]) << 8 |
                                                 std::to_integer<unsigned>(at[1]))};
}

std::size_t max_frame_of(std::size_t mtu) { return wire::kEnvelopeSizeV6 + mtu; }

}  // namespace

Result<std::unique_ptr<RingIo>> RingIo::create(const Config& config, RingPort uplink,
                                               UniqueFd doorbell) {
  const auto envelope = wire::EnvelopeWriter::make(config.own);
  if (!envelope) {
    return tl::unexpected(envelope.error());
  }
  UniqueFd wait(::epoll_create1(EPOLL_CLOEXEC));
  if (!wait) {
    return fail(ErrorCode::out_of_resources, errno_text("ring: epoll_create1"));
  }
  if (auto watched = watch_edges(wait.get(), doorbell.get()); !watched) {
    return tl::unexpected(watched.error());
  }
  return std::unique_ptr<RingIo>(
      new RingIo(config, *envelope, std::move(uplink), std::move(doorbell), std::move(wait)));
}

Result<RingIo::Pair> RingIo::create_pair(const Config& first, const Config& second,
                                         std::size_t ring_bytes) {
  auto memory = RingPort::create_memory(ring_bytes);
  if (!memory) {
    return tl::unexpected(memory.error());
  }
  UniqueFd bells[2];
  for (auto& bell : bells) {
    auto made = create_doorbell();
    if (!made) {
      return tl::unexpected(made.error());
    }
    bell = std::move(*made);
  }
  const Config* configs[2] = {&first, &second};
  std::unique_ptr<RingIo> ends[2];
  for (int end = 0; end < 2; ++end) {
    auto others = duplicate(bells[1 - end].get());
    if (!others) {
      return tl::unexpected(others.error());
    }
    auto port = RingPort::open(memory->get(), ring_bytes, end, max_frame_of(configs[end]->mtu),
                               std::move(*others));
    if (!port) {
      return tl::unexpected(port.error());
    }
    auto own = duplicate(bells[end].get());
    if (!own) {
      return tl::unexpected(own.error());
    }
    auto io = create(*configs[end], std::move(*port), std::move(*own));
    if (!io) {
      return tl::unexpected(io.error());
    }
    ends[end] = std::move(*io);
  }
  return Pair{std::move(ends[0]), std::move(ends[1])};
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
  for (bool more = true; more && received_count_ < kBurst;) {
    more = take_share(uplink_);
    for (std::size_t i = 0; i < direct_.size() && received_count_ < kBurst; ++i) {
      if (++next_direct_ >= direct_.size()) {
        next_direct_ = 0;
      }
      more = take_share(direct_[next_direct_]->port) || more;
    }
  }
  if (received_count_ == 0) {
    until_attend_ -= std::min(until_attend_, kIdlePollCounts);
  }
  return {received_.data(), received_count_};
}

// True: there may be more.
bool RingIo::take_share(RingPort& port) {
  const std::size_t end = std::min(received_count_ + kShare, kBurst);
  while (received_count_ < end) {
    RecordInfo info;
    const auto frame = port.rx().next(info);
    if (frame.empty()) {
      if (port.rx().broken()) [[unlikely]] {
        until_attend_ = 0;
      }
      return false;
    }
    accept(frame, info);
  }
  return true;
}

void RingIo::accept(std::span<const std::byte> frame, const RecordInfo& info) {
  const auto envelope = wire::Envelope::parse(frame);
  if (!envelope.ok() || envelope.destination() != config_.own) [[unlikely]] {
    ++counters_.rx_malformed;
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
      return direct.attachment == attachment && direct.peer == packet.to && !direct.ended;
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
  // From the end to the beginning: the consumer watches the first line.
  std::byte* to = frame + envelope + packet.header_size;
  for (const auto& piece : packet.payload) {
    if (!piece.empty()) {
      port.tx().copy(to, piece);
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
        const bool is_uplink = stall == &uplink_stall_;
        if (!given_up(*port, *stall, is_uplink ? config_.uplink_patience : config_.patience)) {
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
  return taken;
}

// Of a ring that is full: whether its reader has had its time.
bool RingIo::given_up(RingPort& port, Stall& stall, Duration patience) const {
  const std::uint64_t position = port.tx().consumed();
  const bool moved = position != stall.position;
  if (stall.given_up && !moved) {
    return true;
  }
  const TimePoint now = clock_now();
  if (stall.since == kNever || moved) {
    stall = {.since = now, .position = position, .given_up = false};
  }
  stall.given_up = now - stall.since >= patience;
  return stall.given_up;
}

bool RingIo::has_room(RingPort& port, Stall& stall, Duration patience, std::size_t packets) {
  if (port.broken() || port.tx().has_room(packets, max_frame_of(config_.mtu))) [[likely]] {
    stall.since = kNever;
    stall.given_up = false;
    return true;
  }
  return given_up(port, stall, patience);
}

std::size_t RingIo::transmit_room() {
  for (std::size_t packets = kBurst; packets > 0; packets /= 4) {
    bool all = !uplink_open_ || has_room(uplink_, uplink_stall_, config_.uplink_patience, packets);
    for (auto& direct : direct_) {
      all = all &&
            (direct->ended || has_room(direct->port, direct->stall, config_.patience, packets));
    }
    if (all) {
      return packets;
    }
  }
  return 0;
}

bool RingIo::arm() {
  armed_ = true;
  for_each_port([](RingPort& port) { port.rx().set_asleep(true); });
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool quiet = true;
  for_each_port(
      [&](RingPort& port) { quiet = quiet && (port.rx().empty() || port.rx().broken()); });
  if (!quiet) {
    disarm();
  }
  return quiet;
}

void RingIo::disarm() {
  if (!armed_) {
    return;
  }
  armed_ = false;
  for_each_port([](RingPort& port) { port.rx().set_asleep(false); });
  const Uncancellable here;
  std::array<epoll_event, 4> events;
  const int count = ::epoll_wait(wait_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    if (events[static_cast<std::size_t>(i)].data.fd != doorbell_.get()) {
      until_attend_ = 0;
    }
  }
}

void RingIo::set_keeper(std::unique_ptr<PortKeeper> keeper) {
  keeper_ = std::move(keeper);
  until_attend_ = 0;
}

Result<void> RingIo::watch(int fd) { return watch_edges(wait_.get(), fd); }

bool RingIo::add_direct(const Address& peer, AttachmentId attachment, RingPort port) {
  remove_direct(peer, attachment);
  const auto living = std::count_if(direct_.begin(), direct_.end(),
                                    [](const auto& direct) { return !direct->ended; });
  if (static_cast<std::size_t>(living) >= kMaxDirectPorts) {
    return false;
  }
  direct_.push_back(std::make_unique<Direct>(Direct{peer, attachment, std::move(port), {}, false}));
  return true;
}

void RingIo::remove_direct(const Address& peer, AttachmentId attachment) {
  last_route_ = nullptr;
  for (auto& direct : direct_) {
    direct->ended |= direct->attachment == attachment && direct->peer == peer;
  }
}

void RingIo::remove_all_direct() {
  last_route_ = nullptr;
  direct_.clear();
}

Result<void> RingIo::replace_uplink(RingPort uplink, UniqueFd doorbell) {
  if (auto watched = watch(doorbell.get()); !watched) {
    return watched;
  }
  doorbell_ = std::move(doorbell);
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
  counters_.ports_broken +=
      std::erase_if(direct_, [](const auto& direct) { return direct->port.broken(); });
  std::erase_if(direct_,
                [](const auto& direct) { return direct->ended && direct->port.rx().empty(); });
  if (std::any_of(direct_.begin(), direct_.end(),
                  [](const auto& direct) { return direct->ended; })) {
    until_attend_ = 1;  // after what is left has been received
  }
}

}  // namespace weft::srd
