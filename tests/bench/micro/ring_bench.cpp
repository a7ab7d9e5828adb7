// Owns the cost of carrying packets through shared-memory rings, without an engine at either end.
//
// Both ends are in this thread, so nothing waits and no line changes its core: what is measured is
// the work of the rings, and not the distance of two cores.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "srd/base/check.hpp"
#include "srd/io/ring_io.hpp"
#include "srd/net/envelope.hpp"
#include "srd/wire/srd_codec.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {
namespace {

constexpr std::size_t kBurst = 32;
constexpr std::size_t kMtu = 4096 + sizeof(wire::DataHeader);
constexpr std::size_t kRing = std::size_t{1} << 20;
constexpr std::int64_t kRounds = 4096;
constexpr AttachmentId kOne{7};
constexpr AttachmentId kOther{8};
constexpr Life kLife{100};

Address address(unsigned last) { return Address::v4(127, 0, 0, last); }

template <class T>
T must(Result<T> result) {
  WEFT_CHECK(result.has_value());
  return std::move(*result);
}

// With the sender's true attachment and life: direct rings drop packets that claim another one.
std::vector<TxPacket> burst_of(std::size_t size, std::span<const std::byte> payload) {
  wire::DataHeader header{};
  header.common.version = wire::kVersion;
  header.common.type = static_cast<std::uint8_t>(wire::PacketType::write);
  header.common.source_attachment = kOne.value();
  header.common.destination_attachment = kOther.value();
  header.common.source_life = kLife.value();
  std::vector<TxPacket> packets(kBurst);
  for (std::size_t i = 0; i < kBurst; ++i) {
    packets[i].to = address(2);
    packets[i].path = PathId{static_cast<std::uint16_t>(i)};
    packets[i].header_size = sizeof header;
    wire::store(packets[i].header.data(), header);
    packets[i].payload[0] = payload.first(size);
  }
  return packets;
}

// What weftd does when two processes talk to each other.
void connect(RingPorts& one, RingPorts& other) {
  constexpr std::size_t kFrame = net::max_frame_for(kMtu);
  const UniqueFd memory = must(RingPort::create_memory(kRing));
  auto bells = must(Bell::create_pair());
  auto near = must(RingPort::open(memory.get(), kRing, 0, kFrame, std::move(bells.first)));
  auto far = must(RingPort::open(memory.get(), kRing, 1, kFrame, std::move(bells.second)));
  WEFT_CHECK(one.add_direct({address(2), kOther, kLife}, std::move(near)));
  WEFT_CHECK(other.add_direct({address(1), kOne, kLife}, std::move(far)));
}

// Bursts of one size from one end to the other: through a direct ring, or the uplink.
void carry(benchmark::State& state, bool direct) {
  auto ends = must(RingIo<wire::SrdCodec>::create_pair({.own = address(1), .mtu = kMtu},
                                                       {.own = address(2), .mtu = kMtu}, kRing));
  if (direct) {
    connect(*ends.first, *ends.second);
  }
  const std::vector<std::byte> payload(kMtu);
  const auto packets = burst_of(static_cast<std::size_t>(state.range(0)), payload);
  std::uint64_t received = 0;
  for (auto _ : state) {
    WEFT_CHECK(ends.first->transmit_room() == kBurst);
    WEFT_CHECK(ends.first->transmit(packets) == kBurst);
    received += ends.second->receive().size();
    ends.second->release();
  }
  WEFT_CHECK(received == static_cast<std::uint64_t>(state.iterations()) * kBurst);
  state.SetItemsProcessed(static_cast<std::int64_t>(received));
}

void ring_uplink(benchmark::State& state) { carry(state, false); }
BENCHMARK(ring_uplink)->Arg(0)->Arg(64)->Arg(4096)->Iterations(kRounds);

void ring_direct(benchmark::State& state) { carry(state, true); }
BENCHMARK(ring_direct)->Arg(0)->Arg(64)->Arg(4096)->Iterations(kRounds);

}  // namespace
}  // namespace weft::srd
