// Owns packets over shared-memory rings: the data path, for the protocol of its codec.
//
//   process A                                        process B
//     RingIo ---- uplink ----> weftd ----> uplink ---- RingIo      any destination
//        \______________ direct ring _________________/            a peer talked to, ideal network
//
// Each line is a RingPort, a ring in either direction. receive() takes a share of every port in
// turn and lends the frames where they lie in the rings, which their writers may still change: code
// that looks at a byte twice copies it first. transmit() routes by destination: to the direct ring
// of that attachment, if there is one, else to the uplink. RingPorts, the base class, has what does
// not depend on the protocol: ports that come and go, room, and sleeping.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "srd/base/lent_memory.hpp"
#include "srd/io/fill_packet.hpp"
#include "srd/io/own_addresses.hpp"
#include "srd/io/ring_ports.hpp"
#include "srd/net/frame_codec.hpp"

namespace weft::srd {

template <net::FrameCodec Codec>
class RingIo final : public RingPorts {
 public:
  [[nodiscard]] static Result<std::unique_ptr<RingIo>> create(const Config& config,
                                                              RingPort uplink) {
    auto own = OwnAddresses<Codec>::make(config.own);
    if (!own) {
      return tl::unexpected(own.error());
    }
    auto wait = create_wait();
    if (!wait) {
      return tl::unexpected(wait.error());
    }
    std::unique_ptr<RingIo> io(new RingIo(config, std::move(*own), std::move(*wait)));
    if (auto placed = io->replace_uplink(std::move(uplink)); !placed) {
      return tl::unexpected(placed.error());
    }
    return io;
  }

  using Pair = std::pair<std::unique_ptr<RingIo>, std::unique_ptr<RingIo>>;
  // Two ends whose uplinks are joined, without any daemon.
  [[nodiscard]] static Result<Pair> create_pair(const Config& first, const Config& second,
                                                std::size_t ring_bytes = kDefaultRingBytes) {
    auto ports =
        joined_ports(ring_bytes, net::max_frame_for(first.mtu), net::max_frame_for(second.mtu));
    if (!ports) {
      return tl::unexpected(ports.error());
    }
    auto one = create(first, std::move(ports->first));
    auto other = create(second, std::move(ports->second));
    if (!one || !other) {
      return tl::unexpected(one ? other.error() : one.error());
    }
    return Pair{std::move(*one), std::move(*other)};
  }

  [[nodiscard]] IoCapabilities capabilities() const override {
    return capabilities_with(Codec::kPorts.paths);
  }
  [[nodiscard]] std::span<const RxPacket> receive() override;
  [[nodiscard]] std::size_t transmit(std::span<const TxPacket> packets) override;

 private:
  RingIo(const Config& config, OwnAddresses<Codec> own, UniqueFd wait)
      : RingPorts(config, std::move(wait)), own_(std::move(own)) {}

  // `peer`: the only process whose packets may come out of that port. Null: the uplink, where weftd
  // has checked senders, and packets of any peer may come.
  [[nodiscard]] std::size_t take_share(RingPort& port, const Peer* peer, std::size_t most);
  void accept(std::span<const std::byte> frame, const RecordInfo& info, const Peer* peer);
  [[nodiscard]] Route route(const TxPacket& packet);
  [[nodiscard]] bool send_one(RingPort& port, const TxPacket& packet);

  OwnAddresses<Codec> own_;
  std::size_t received_count_ = 0;
  std::array<RxPacket, kBurst> received_;
};

// Takes a share of every port in each round, so that none can starve the others: first of the
// uplink, which carries packets of many peers, then of the direct ports, continuing where the last
// burst ended.
template <net::FrameCodec Codec>
std::span<const RxPacket> RingIo<Codec>::receive() {
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

// Returns how many records it took, whether good or bad: both cost time, so both use up the share.
template <net::FrameCodec Codec>
std::size_t RingIo<Codec>::take_share(RingPort& port, const Peer* peer, std::size_t most) {
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

// Lends the packet of a frame, if it is for us and, from a direct port, from that port's peer.
template <net::FrameCodec Codec>
void RingIo<Codec>::accept(std::span<const std::byte> frame, const RecordInfo& info,
                           const Peer* peer) {
  const auto envelope = net::Envelope::parse(frame, Codec::kPorts);
  const auto to = envelope.ok() ? own_.number_of(envelope.destination()) : std::nullopt;
  if (!to) [[unlikely]] {
    ++counters_.rx_malformed;
    return;
  }
  if (peer != nullptr && !(net::nic_of<Codec>(envelope.source()) == peer->address &&
                           Codec::is_from(envelope.packet(), peer->attachment, peer->life)))
      [[unlikely]] {
    ++counters_.rx_forged;
    return;
  }
  RxPacket& packet = received_[received_count_++];
  fill_packet<Codec>(frame, envelope, packet, *to);
  packet.arrived = (info.flags & kRecordArrival) != 0 ? time_at(Duration{info.time}) : kNever;
  ++counters_.rx_packets;
  counters_.rx_bytes += packet.bytes.size();
}

// Bursts go to one peer, so the latest route is tried first. No route: weftd is gone.
template <net::FrameCodec Codec>
typename RingIo<Codec>::Route RingIo<Codec>::route(const TxPacket& packet) {
  std::optional<AttachmentId> attachment;
  if (!direct_.empty() && (attachment = Codec::destination_of(packet))) {
    const Address nic = net::nic_of<Codec>(packet.to);
    const auto leads_there = [&](const Direct& direct) {
      return direct.peer.attachment == *attachment && direct.peer.address == nic && !direct.ended;
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

// False: the ring has no room. True: sent, or dropped and counted; a record that was reserved and
// not committed is used by the next packet.
template <net::FrameCodec Codec>
bool RingIo<Codec>::send_one(RingPort& port, const TxPacket& packet) {
  const net::EnvelopeWriter& writer = own_.writer(packet);
  const std::size_t envelope = writer.size();
  const std::size_t trailer = net::trailer_size<Codec>(packet);
  const std::size_t size = packet.size() + trailer;
  std::byte* frame = port.tx().reserve(envelope + size);
  if (frame == nullptr) {
    return false;
  }
  // Written from the end to the beginning: the consumer polls the first cache line, which should
  // change hands once. This is the first of the payload's two copies; place.hpp has the second.
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
  if constexpr (net::WritesTrailer<Codec>) {
    Codec::write_trailer(to, packet);
  }
  std::memcpy(frame + envelope, packet.header.data(), packet.header_size);
  if (!writer.write(frame, packet.to, packet.path, packet.ecn, Codec::dscp_of(packet), size,
                    net::hop_limit_of<Codec>(packet))) {
    ++counters_.tx_unroutable;
    return true;
  }
  port.tx().commit(envelope + size, {.flags = kRecordUnchecked, .time = nanoseconds(packet.when)});
  ++counters_.tx_packets;
  counters_.tx_bytes += size;
  return true;
}

// The peer of a port is woken when the burst goes on to another port, and at the end: once per run
// of packets, because a wake-up is a system call.
template <net::FrameCodec Codec>
std::size_t RingIo<Codec>::transmit(std::span<const TxPacket> packets) {
  std::size_t taken = 0;
  RingPort* previous = nullptr;
  for (const TxPacket& packet : packets) {
    const auto [port, stall] = route(packet);
    if (port == nullptr || port->broken()) [[unlikely]] {
      ++counters_.tx_unroutable;
    } else if (packet.size() + net::trailer_size<Codec>(packet) > config_.mtu) [[unlikely]] {
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

}  // namespace weft::srd
