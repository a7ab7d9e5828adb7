// Owns how the conformance suite makes each carrier: a pair of ends in one process, with an address
// for each. A carrier that this machine does not have throws, and its tests say why they are
// skipped. Where a carrier has patience, it is an hour: the suite is one thread, and must not lose
// packets because it was off its core.
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "srd/io/dgram_io.hpp"
#include "srd/io/dpdk_port.hpp"
#include "srd/io/fault_io.hpp"
#include "srd/io/memory_io.hpp"
#include "srd/io/pcap_io.hpp"
#include "srd/io/tap_io.hpp"
#include "srd/io/tunnel_io.hpp"
#include "tests/unit/srd/io/bridged_taps.hpp"
#include "tests/unit/srd/io/conformance.hpp"
#include "tests/unit/srd/io/srd_carriers.hpp"

namespace weft::srd::test {
namespace {

// A page of payload, and room for the header before it.
constexpr std::size_t kMtu = 4096 + 64;

IoPair memory_pair() {
  const Address first = ipv4(127, 1, 0, 1);
  const Address second = ipv4(127, 1, 0, 2);
  auto [a, b] = MemoryIo::create_pair({.own = first, .mtu = kMtu}, {.own = second, .mtu = kMtu});
  return {std::move(a), std::move(b), first, second};
}

IoPair ring_pair(const Address& first, const Address& second, std::size_t bytes) {
  // The reader here is the same thread, however long that may be off its core.
  const auto config = [](const Address& own) {
    return test::SrdRings::Config{.own = own,
                                  .mtu = kMtu,
                                  .patience = std::chrono::hours{1},
                                  .uplink_patience = std::chrono::hours{1}};
  };
  auto pair = test::SrdRings::create_pair(config(first), config(second), bytes);
  if (!pair) {
    throw std::runtime_error(pair.error().message);
  }
  return {std::move(pair->first), std::move(pair->second), first, second};
}

IoPair udp_pair(const Address& first, const Address& second) {
  auto a = test::SrdSockets::create({.own = first, .mtu = kMtu, .paths = 8});
  auto b = test::SrdSockets::create({.own = second, .mtu = kMtu, .paths = 8});
  if (!a || !b) {
    throw std::runtime_error(!a ? a.error().message : b.error().message);
  }
  return {std::move(*a), std::move(*b), first, second};
}

template <class T>
T must(Result<T> result) {
  if (!result) {
    throw std::runtime_error(result.error().message);
  }
  return std::move(*result);
}

std::unique_ptr<PacketIo> wrapped(const Address& own, std::unique_ptr<FrameIo> frames) {
  return must(test::SrdEnvelopes::create({.own = own, .mtu = kMtu}, std::move(frames)));
}

IoPair dgram_pair() {
  static int pairs = 0;
  const std::string path =
      "/tmp/weft-test-dgram-" + std::to_string(::getpid()) + "-" + std::to_string(++pairs);
  const std::string one = path + "-one";
  const std::string two = path + "-two";
  const auto open = [&](const std::string& local, const std::string& remote) {
    return must(
        DgramIo::create({.local = local, .remote = remote, .patience = std::chrono::hours{1}}));
  };
  const Address first = ipv4(127, 1, 0, 1);
  const Address second = ipv4(127, 1, 0, 2);
  return {wrapped(first, open(one, two)), wrapped(second, open(two, one)), first, second};
}

// Carriers whose ends find each other by and by: until packets pass both ways, and nothing is left.
void meet(PacketIo& first, PacketIo& second, const Address& one, const Address& other) {
  TxPacket hello;
  hello.header_size = 64;
  hello.header.fill({});
  PacketIo* ends[] = {&first, &second};
  const Address* addresses[] = {&one, &other};
  bool heard[2] = {};
  for (int round = 0; round < 1'000'000 && !(heard[0] && heard[1]); ++round) {
    for (int end = 0; end < 2; ++end) {
      hello.to = *addresses[1 - end];
      if (!heard[1 - end]) {
        [[maybe_unused]] const auto taken = ends[end]->transmit({&hello, 1});
      }
      heard[end] = !ends[end]->receive().empty() || heard[end];
      ends[end]->release();
    }
    ::sched_yield();
  }
  if (!heard[0] || !heard[1]) {
    throw std::runtime_error("the two ends never met");
  }
  // Greetings that were still under way would be taken for the suite's own packets.
  for (int quiet = 0; quiet < 100; ++quiet) {
    for (PacketIo* end : ends) {
      quiet = end->receive().empty() ? quiet : 0;
      end->release();
    }
  }
}

std::unique_ptr<FrameIo> dpdk_port(const std::string& devargs) {
  return must(open_dpdk_port(
      {.devargs = devargs, .max_frame = kMtu + 64, .eal = {}, .patience = std::chrono::hours{1}}));
}

// Both ends in one process; the driver's threads join them a moment later.
IoPair memif_pair() {
  static int pairs = 0;
  const std::string number = std::to_string(++pairs);
  // Few and small buffers, so that the suite meets full rings soon.
  const std::string common = ",socket-abstract=no,bsize=4352,rsize=8,socket=/tmp/weft-test-memif-" +
                             std::to_string(::getpid()) + "-" + number;
  const Address first = ipv4(10, 1, 0, 1);
  const Address second = ipv4(10, 1, 0, 2);
  auto server = wrapped(first, dpdk_port("net_memif_s" + number + ",role=server" + common));
  auto client = wrapped(second, dpdk_port("net_memif_c" + number + ",role=client" + common));
  meet(*server, *client, first, second);
  return {std::move(server), std::move(client), first, second};
}

IoPair vhost_pair() {
  static int pairs = 0;
  const std::string number = std::to_string(++pairs);
  const std::string socket = "/tmp/weft-test-vhost-" + std::to_string(::getpid()) + "-" + number;
  const Address first = ipv4(10, 1, 0, 1);
  const Address second = ipv4(10, 1, 0, 2);
  auto host = wrapped(first, dpdk_port("net_vhost" + number + ",iface=" + socket));
  auto guest = wrapped(second, dpdk_port("net_virtio_user" + number + ",path=" + socket));
  meet(*host, *guest, first, second);
  return {std::move(host), std::move(guest), first, second};
}

IoPair tunnel_pair_with(const std::optional<JoinKey>& key) {
  // Each process in a third byte of its own, for tests run beside each other.
  const std::string base = "127.92." + std::to_string(::getpid() % 250) + ".";
  const auto open = [&](const char* local, const char* remote) {
    return must(TunnelIo::create({.local = base + local, .remote = base + remote, .key = key}));
  };
  const Address first = ipv4(10, 1, 0, 1);
  const Address second = ipv4(10, 1, 0, 2);
  auto one = open("1", "2");
  auto two = open("2", "1");
  while (!one->is_up() || !two->is_up()) {  // they introduce themselves
    [[maybe_unused]] const auto nothing = one->receive();
    [[maybe_unused]] const auto neither = two->receive();
  }
  return {wrapped(first, std::move(one)), wrapped(second, std::move(two)), first, second};
}

IoPair tunnel_pair() { return tunnel_pair_with(std::nullopt); }
IoPair proved_tunnel_pair() { return tunnel_pair_with(JoinKey{}); }

IoPair tap_pair() {
  auto [one, two] = bridged_taps();
  const Address first = ipv4(10, 1, 0, 1);
  const Address second = ipv4(10, 1, 0, 2);
  return {wrapped(first, must(TapIo::adopt({}, std::move(one)))),
          wrapped(second, must(TapIo::adopt({}, std::move(two)))), first, second};
}

// Decorators without anything to do must be carriers like any other.
IoPair decorated(IoPair pair,
                 const std::function<std::unique_ptr<PacketIo>(std::unique_ptr<PacketIo>,
                                                               const Address&)>& decorate) {
  pair.first = decorate(std::move(pair.first), pair.first_address);
  pair.second = decorate(std::move(pair.second), pair.second_address);
  return pair;
}

IoPair ring() { return ring_pair(ipv4(127, 1, 0, 1), ipv4(127, 1, 0, 2), std::size_t{1} << 19); }

IoPair ring_with_faults(const FaultIo::Config& config) {
  return decorated(ring(), [&](std::unique_ptr<PacketIo> io, const Address&) {
    return std::make_unique<FaultIo>(config, std::move(io));
  });
}

IoPair ring_with_capture() {
  return decorated(ring(), [](std::unique_ptr<PacketIo> io, const Address& own) {
    char path[] = "/tmp/weft-capture-XXXXXX";
    const UniqueFd file(::mkstemp(path));  // the name is all that is wanted
    auto capture = must(PacketCapture::create(path, own, CaptureFormat::of<wire::SrdCodec>()));
    ::unlink(path);
    return std::make_unique<PcapIo>(std::move(io), std::move(capture));
  });
}

}  // namespace

Address ipv4(unsigned a, unsigned b, unsigned c, unsigned d) { return Address::v4(a, b, c, d); }

Address ipv6(unsigned last) {
  Address address;
  address.bytes[0] = std::byte{0xFD};
  address.bytes[15] = static_cast<std::byte>(last);
  return address;
}

const std::vector<Carrier>& carriers() {
  static const std::vector<Carrier> list = {
      {"memory", memory_pair},
      {"ring", ring},
      // So small that every burst of the suite fills it.
      {"small_ring",
       [] { return ring_pair(ipv4(127, 1, 0, 1), ipv4(127, 1, 0, 2), std::size_t{1} << 15); }},
      {"udp", [] { return udp_pair(ipv4(127, 1, 7, 1), ipv4(127, 1, 7, 2)); }, false, false},
      {"dgram", dgram_pair, true, true, false},
      {"tap", tap_pair, false, true, false},
      {"tunnel", tunnel_pair, false, false, false},
      {"proved_tunnel", proved_tunnel_pair, false, false, false},
      {"memif", memif_pair},
      {"vhost", vhost_pair},
      {"fault", [] { return ring_with_faults({}); }},
      {"fault_delay", [] { return ring_with_faults({.delay = std::chrono::microseconds{5}}); },
       false},
      {"pcap", ring_with_capture},
      {"ring_ipv6", [] { return ring_pair(ipv6(1), ipv6(2), std::size_t{1} << 19); }},
  };
  return list;
}

}  // namespace weft::srd::test
