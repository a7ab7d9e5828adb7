// Owns the layouts of questions and answers about neighbours.
#include "emu/daemon/neighbours.hpp"

#include <algorithm>

#include "srd/net/envelope.hpp"
#include "srd/net/ip_layout.hpp"

namespace weft::daemon {
namespace {

namespace net = srd::net;
using net::load16;
using net::load8;
using net::store16;
using net::store8;

constexpr std::size_t kMacSize = 6;
constexpr std::size_t kSourceMac = 6;  // where it stands in a frame
constexpr unsigned kGroupBit = 1;      // of the first byte of an Ethernet address

// --- ARP
constexpr std::size_t kArpSize = 28;
constexpr std::size_t kArpForm = 0;  // Ethernet and IPv4, and the sizes of their addresses
constexpr std::size_t kArpOperation = 6;
constexpr std::size_t kArpSenderMac = 8;
constexpr std::size_t kArpTargetMac = 18;
constexpr std::size_t kArpTarget = 24;
constexpr unsigned kArpRequest = 1;
constexpr unsigned kArpReply = 2;
constexpr std::size_t kV4Size = 4;

// --- Neighbour discovery: behind the header of IPv6, solicitation and advertisement alike.
constexpr std::uint8_t kIcmp6 = 58;
constexpr std::uint8_t kSolicitation = 135;
constexpr std::uint8_t kAdvertisement = 136;
constexpr std::uint8_t kNeverRouted = 255;
constexpr std::size_t kIcmpChecksum = 2;
constexpr std::size_t kFlags = 4;
constexpr unsigned kSolicitedOverride = 0x60;
constexpr std::size_t kTarget = 8;
constexpr std::size_t kOption = 24;
constexpr std::size_t kV6Size = 16;
constexpr unsigned kTargetMacOption = 2;
constexpr std::size_t kAnswerSize = kOption + 2 + kMacSize;

// `size` bytes of ICMP behind that header, with the pseudo header in front. 0 if the checksum
// within is right.
std::uint16_t icmp_checksum(const std::byte* ip, std::size_t size) {
  std::uint32_t sum = net::sum_words(ip + net::kV6Source, 2 * kV6Size);
  sum += static_cast<std::uint32_t>(size) + kIcmp6;
  const std::byte* const icmp = ip + net::kIpV6Size;
  sum += net::sum_words(icmp, size & ~std::size_t{1});
  if (size % 2 == 1) {
    sum += std::uint32_t{load8(icmp + size - 1)} << 8;
  }
  return static_cast<std::uint16_t>(~net::fold(sum));
}

std::optional<srd::Address> asked_v4(std::span<const std::byte> arp) {
  constexpr std::byte kForm[] = {std::byte{0}, std::byte{1}, std::byte{8},
                                 std::byte{0}, std::byte{6}, std::byte{4}};
  if (arp.size() < kArpSize || !std::equal(std::begin(kForm), std::end(kForm), &arp[kArpForm]) ||
      load16(&arp[kArpOperation]) != kArpRequest) {
    return std::nullopt;
  }
  return srd::Address::v4(&arp[kArpTarget]);
}

std::optional<srd::Address> asked_v6(std::span<const std::byte> ip) {
  if (ip.size() < net::kIpV6Size + kOption || load8(&ip[net::kV6NextHeader]) != kIcmp6 ||
      load8(&ip[net::kV6Hops]) != kNeverRouted) {
    return std::nullopt;
  }
  const std::size_t size = load16(&ip[net::kV6Length]);
  const std::byte* const icmp = &ip[net::kIpV6Size];
  if (size < kOption || size > ip.size() - net::kIpV6Size || load16(icmp) != kSolicitation << 8 ||
      icmp_checksum(ip.data(), size) != 0) {
    return std::nullopt;
  }
  srd::Address source;
  std::copy_n(&ip[net::kV6Source], kV6Size, source.bytes.begin());
  // Without a source it is a question of a host that looks whether an address is free.
  if (!net::is_host(source)) {
    return std::nullopt;
  }
  srd::Address target;
  std::copy_n(icmp + kTarget, kV6Size, target.bytes.begin());
  return target;
}

std::vector<std::byte> answer_v4(std::span<const std::byte> question, const net::MacAddress& mac) {
  std::vector<std::byte> answer(question.begin(), question.begin() + net::kEthernetSize + kArpSize);
  std::byte* const arp = &answer[net::kEthernetSize];
  const std::byte* const asked = &question[net::kEthernetSize];
  store16(arp + kArpOperation, kArpReply);
  std::ranges::copy(mac, arp + kArpSenderMac);
  std::copy_n(asked + kArpTarget, kV4Size, arp + net::kArpSender);
  std::copy_n(asked + kArpSenderMac, kMacSize, arp + kArpTargetMac);
  std::copy_n(asked + net::kArpSender, kV4Size, arp + kArpTarget);
  return answer;
}

std::vector<std::byte> answer_v6(std::span<const std::byte> question, const net::MacAddress& mac) {
  std::vector<std::byte> answer(net::kEthernetSize + net::kIpV6Size + kAnswerSize);
  std::byte* const ip = &answer[net::kEthernetSize];
  const std::byte* const asked = &question[net::kEthernetSize];
  std::byte* const icmp = ip + net::kIpV6Size;
  store16(&answer[net::kEtherType], net::kEtherTypeV6);
  store8(ip, 0x60);
  store16(ip + net::kV6Length, kAnswerSize);
  store8(ip + net::kV6NextHeader, kIcmp6);
  store8(ip + net::kV6Hops, kNeverRouted);
  std::copy_n(asked + net::kIpV6Size + kTarget, kV6Size, ip + net::kV6Source);
  std::copy_n(asked + net::kV6Source, kV6Size, ip + net::kV6Destination);
  store8(icmp, kAdvertisement);
  store8(icmp + kFlags, kSolicitedOverride);
  std::copy_n(ip + net::kV6Source, kV6Size, icmp + kTarget);
  store8(icmp + kOption, kTargetMacOption);
  store8(icmp + kOption + 1, 1);  // in units of eight bytes
  std::ranges::copy(mac, icmp + kOption + 2);
  store16(icmp + kIcmpChecksum, icmp_checksum(ip, kAnswerSize));
  return answer;
}

}  // namespace

std::optional<srd::Address> asked_address(std::span<const std::byte> frame) {
  if (frame.size() < net::kEthernetSize || (load8(&frame[kSourceMac]) & kGroupBit) != 0) {
    return std::nullopt;
  }
  switch (load16(&frame[net::kEtherType])) {
    case net::kEtherTypeArp:
      return asked_v4(frame.subspan(net::kEthernetSize));
    case net::kEtherTypeV6:
      return asked_v6(frame.subspan(net::kEthernetSize));
    default:
      return std::nullopt;
  }
}

std::vector<std::byte> neighbour_answer(std::span<const std::byte> question,
                                        const srd::Address& nic) {
  const net::MacAddress mac = net::mac_of(nic);
  std::vector<std::byte> answer = load16(&question[net::kEtherType]) == net::kEtherTypeArp
                                      ? answer_v4(question, mac)
                                      : answer_v6(question, mac);
  std::copy_n(&question[kSourceMac], kMacSize, answer.begin());
  std::ranges::copy(mac, &answer[kSourceMac]);
  return answer;
}

}  // namespace weft::daemon
