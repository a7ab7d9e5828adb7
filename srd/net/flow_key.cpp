// Owns what is asked of frames that may be of any protocol.
#include "srd/net/flow_key.hpp"

#include "srd/base/rng.hpp"

namespace weft::srd::net {

std::optional<Address> FlowKey::claimed_source() const {
  const auto reaches = [&](std::size_t size) { return frame_.size() >= kEthernetSize + size; };
  switch (type_) {
    case kEtherTypeV4:
      return reaches(kV4Source + 4) ? std::optional(address(kV4Source)) : std::nullopt;
    case kEtherTypeArp:
      return reaches(kArpSender + 4)
                 ? std::optional(Address::v4(&frame_[kEthernetSize + kArpSender]))
                 : std::nullopt;
    case kEtherTypeV6:
      return reaches(kIpV6Size) ? std::optional(address(kV6Source)) : std::nullopt;
    default:
      return std::nullopt;
  }
}

std::uint32_t FlowKey::hash() const {
  // Of each kind a multiple of twelve bytes: two IPv4 addresses and the ports, two Ethernet
  // addresses, or three times as much. One mixing for twelve bytes, as this is done for each frame.
  constexpr std::size_t kStep = sizeof(std::uint64_t) + sizeof(std::uint32_t);
  constexpr std::size_t kPorts = 4;
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15ULL;
  const std::size_t rest = frame_.size() - kEthernetSize;
  std::size_t begin = 0;
  std::size_t size = kEtherType;
  if (type_ == kEtherTypeV4 && rest >= kIpV4Size + kUdpSize) {
    begin = kEthernetSize + kV4Source;
    size = kIpV4Size - kV4Source + kPorts;
  } else if (type_ == kEtherTypeV6 && rest >= kIpV6Size + kUdpSize) {
    begin = kEthernetSize + kV6Source;
    size = kIpV6Size - kV6Source + kPorts;
  }
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < size; i += kStep) {
    std::uint64_t first;
    std::uint32_t second;
    std::memcpy(&first, frame_.data() + begin + i, sizeof first);
    std::memcpy(&second, frame_.data() + begin + i + sizeof first, sizeof second);
    hash = mix64(hash ^ first ^ kOdd * second);
  }
  return static_cast<std::uint32_t>(hash);
}

}  // namespace weft::srd::net
