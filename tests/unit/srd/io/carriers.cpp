// Owns how the conformance suite makes each carrier.
#include <stdexcept>

#include "srd/io/memory_io.hpp"
#include "srd/io/ring_io.hpp"
#include "srd/io/udp_io.hpp"
#include "tests/unit/srd/io/conformance.hpp"

namespace weft::srd::test {
namespace {

constexpr std::size_t kMtu = 4096 + 64;

IoPair memory_pair() {
  const Address first = ipv4(127, 1, 0, 1);
  const Address second = ipv4(127, 1, 0, 2);
  auto [a, b] = MemoryIo::create_pair({.own = first, .mtu = kMtu}, {.own = second, .mtu = kMtu});
  return {std::move(a), std::move(b), first, second};
}

IoPair ring_pair(const Address& first, const Address& second, std::size_t bytes) {
  // Whoever reads here does it in the same thread, however long that may be off its core.
  const auto config = [](const Address& own) {
    return RingIo::Config{.own = own,
                          .mtu = kMtu,
                          .patience = std::chrono::hours{1},
                          .uplink_patience = std::chrono::hours{1}};
  };
  auto pair = RingIo::create_pair(config(first), config(second), bytes);
  if (!pair) {
    throw std::runtime_error(pair.error().message);
  }
  return {std::move(pair->first), std::move(pair->second), first, second};
}

IoPair udp_pair(const Address& first, const Address& second) {
  auto a = UdpIo::create({.own = first, .mtu = kMtu, .paths = 8});
  auto b = UdpIo::create({.own = second, .mtu = kMtu, .paths = 8});
  if (!a || !b) {
    throw std::runtime_error(!a ? a.error().message : b.error().message);
  }
  return {std::move(*a), std::move(*b), first, second};
}

}  // namespace

Address ipv4(unsigned a, unsigned b, unsigned c, unsigned d) {
  Address address;
  address.bytes[10] = address.bytes[11] = std::byte{0xFF};
  address.bytes[12] = static_cast<std::byte>(a);
  address.bytes[13] = static_cast<std::byte>(b);
  address.bytes[14] = static_cast<std::byte>(c);
  address.bytes[15] = static_cast<std::byte>(d);
  return address;
}

Address ipv6(unsigned last) {
  Address address;
  address.bytes[0] = std::byte{0xFD};
  address.bytes[15] = static_cast<std::byte>(last);
  return address;
}

const std::vector<Carrier>& carriers() {
  static const std::vector<Carrier> list = {
      {"memory", memory_pair},
      {"ring",
       [] { return ring_pair(ipv4(127, 1, 0, 1), ipv4(127, 1, 0, 2), std::size_t{1} << 19); }},
      {"small_ring",
       [] { return ring_pair(ipv4(127, 1, 0, 1), ipv4(127, 1, 0, 2), std::size_t{1} << 15); }},
      {"udp", [] { return udp_pair(ipv4(127, 1, 7, 1), ipv4(127, 1, 7, 2)); }, false, false},
      {"ring_ipv6", [] { return ring_pair(ipv6(1), ipv6(2), std::size_t{1} << 19); }},
  };
  return list;
}

}  // namespace weft::srd::test
