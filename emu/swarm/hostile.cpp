// Owns the attacker's kinds of packets.
#include "emu/swarm/hostile.hpp"

#include <algorithm>
#include <span>

#include "emu/swarm/world_names.hpp"
#include "srd/wire/parse.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::swarm {
namespace {

constexpr std::uint32_t kFirstStranger = 1000;  // no host has this number or a higher one
// Few addresses for replays, so that one stranger sends several times; many for senders that must
// not take up the room for peers.
constexpr std::uint32_t kStrangers = 4;
constexpr std::uint32_t kManyStrangers = 60'000;
constexpr std::uint32_t kManyLives = 1000;  // more than there are of any process

// A life that is later than all lives of the same process, and not 0, which means none.
std::uint32_t nobodys_life(std::uint32_t life) { return std::max(1U, life + kManyLives); }

}  // namespace

// Once the memory is full, packets replace others rarely, and less often the longer the run: so old
// packets stay in it as well.
void Attacker::overhear(const VirtualNetwork::InFlight& packet) {
  ++seen_;
  if (remembered_.size() < kMemory) {
    remembered_.push_back(packet);
  } else if (const std::uint64_t at = rng_.between(0, seen_ / 4); at < kMemory) {
    remembered_[at] = packet;
  }
}

// Random bytes, most of them with a version and a type that are right: so they pass the first
// checks of the parser and not only its first one.
VirtualNetwork::InFlight Attacker::rubbish(const Step& step) {
  VirtualNetwork::InFlight packet;
  packet.bytes.resize(rng_.below(300));
  for (std::byte& byte : packet.bytes) {
    byte = static_cast<std::byte>(rng_.next());
  }
  if (packet.bytes.size() >= sizeof(srd::wire::CommonHeader) && rng_.chance(0.8)) {
    static constexpr std::uint8_t kTypes[] = {1, 2, 3, 4, 5, 16, 17, 18};
    packet.bytes[0] = std::byte{srd::wire::kVersion};
    packet.bytes[1] = static_cast<std::byte>(kTypes[rng_.below(8)]);
    if (rng_.chance(0.5)) {
      packet.bytes[2] |= std::byte{srd::wire::kChecksummed};
    }
  }
  packet.from = step.peer;
  packet.source = address_of_host(step.peer);
  packet.to = step.host;
  packet.path = srd::PathId{static_cast<std::uint16_t>(rng_.below(300))};
  packet.header_size = static_cast<std::uint16_t>(packet.bytes.size());
  return packet;
}

// The most correct packet that a stranger can send: for a life that does not exist, or cut to a
// header, which no checksum covers, perhaps in the name of a later life of a real host. All of it
// must have no effect.
void Attacker::speak_as_stranger(TimePoint now, VirtualNetwork& network,
                                 VirtualNetwork::InFlight packet) {
  srd::wire::DataHeader header;
  if (packet.header_size != sizeof header || !srd::wire::load(packet.bytes, header)) {
    return;
  }
  const bool trimmed = packet.bytes.size() > sizeof header && rng_.chance(0.6);
  if (trimmed && rng_.chance(0.5)) {
    header.common.source_life = nobodys_life(header.common.source_life.value());
  } else {
    packet.from = VirtualNetwork::kNobody;
    packet.source = address_of_host(kFirstStranger + kStrangers + rng_.below(kManyStrangers));
  }
  if (!trimmed) {
    header.common.destination_life = nobodys_life(header.common.destination_life.value());
  }
  const auto bytes = std::span(packet.bytes);
  srd::wire::store(bytes.data(), header);
  if ((header.common.flags & srd::wire::kChecksummed) != 0) {
    srd::wire::seal(bytes.first(sizeof header), bytes.subspan(sizeof header), {});
  }
  if (trimmed) {
    packet.bytes.resize(sizeof header);
  }
  packet.trimmed = trimmed;
  packet.genuine = false;
  network.inject(now + Duration{rng_.below(5000)}, std::move(packet));
}

// With nothing overheard yet only random bytes can be sent. A packet to an address without a host
// would be dropped by the network anyway, and is not replayed.
void Attacker::act(TimePoint now, const Step& step, VirtualNetwork& network) {
  for (std::uint32_t i = 0; i < step.length; ++i) {
    if (step.act == Act::stranger_speaks && remembered_.empty()) {
      return;
    }
    if (step.act == Act::inject_random || remembered_.empty()) {
      VirtualNetwork::InFlight packet = rubbish(step);
      packet.genuine = false;
      packet.trimmed = rng_.chance(0.1);
      network.inject(now, std::move(packet));
      continue;
    }
    VirtualNetwork::InFlight packet =
        remembered_[rng_.below(static_cast<std::uint32_t>(remembered_.size()))];
    if (packet.bytes.empty() || packet.to == VirtualNetwork::kNobody) {
      continue;
    }
    if (step.act == Act::stranger_speaks) {
      speak_as_stranger(now, network, std::move(packet));
      continue;
    }
    const auto size = static_cast<std::uint32_t>(packet.bytes.size());
    switch (step.act) {
      case Act::inject_mutated:
        for (std::uint32_t n = 1 + rng_.below(4); n > 0; --n) {
          packet.bytes[rng_.below(size)] ^= static_cast<std::byte>(1 + rng_.below(255));
        }
        packet.genuine = false;
        break;
      case Act::inject_truncated:
        packet.bytes.resize(rng_.below(size));
        packet.header_size =
            std::min(packet.header_size, static_cast<std::uint16_t>(packet.bytes.size()));
        packet.trimmed = rng_.chance(0.5);
        packet.genuine = false;
        break;
      case Act::replay_foreign:
        packet.from = VirtualNetwork::kNobody;
        packet.source = address_of_host(kFirstStranger + rng_.below(kStrangers));
        break;
      default:
        break;
    }
    network.inject(now + Duration{rng_.below(5000)}, std::move(packet));
  }
}

}  // namespace weft::swarm
