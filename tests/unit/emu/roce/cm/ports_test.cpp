// Owns ports and addresses: which ids may share a port, and what an id may be bound to.
#include <gtest/gtest.h>

#include "tests/unit/emu/roce/cm/world.hpp"

namespace weft::roce::cm {
namespace {

constexpr SocketAddress kAny{srd::Address::v4(0, 0, 0, 0), kTestPort};
constexpr SocketAddress kOne{srd::Address::v4(10, 9, 0, 1), kTestPort};
constexpr SocketAddress kTwo{srd::Address::v4(10, 9, 1, 1), kTestPort};

Binding binding_of(const SocketAddress& address, bool reuse = false, bool own_family = false) {
  return {PortSpace::tcp, address, reuse, own_family};
}

struct PortsTest : ::testing::Test {
  int bind(std::uint32_t owner, Binding binding) { return ports.bind(owner, binding); }
  OpenClaims claims;
  Ports ports{claims, 1};
};

// Linux has two errors for it: the address itself is taken, or one that overlaps it.
TEST_F(PortsTest, AnAddressHasAPortOnce) {
  EXPECT_EQ(bind(1, binding_of(kOne)), 0);
  EXPECT_EQ(bind(2, binding_of(kTwo)), 0);
  EXPECT_EQ(bind(3, binding_of(kOne)), EADDRINUSE);
  EXPECT_EQ(bind(3, binding_of(kAny)), EADDRNOTAVAIL);
  EXPECT_EQ(claims.own.size(), 1U);
  ports.release(1, binding_of(kOne));
  EXPECT_EQ(bind(3, binding_of(kOne)), 0);
  ports.release(3, binding_of(kOne));
  ports.release(2, binding_of(kTwo));
  EXPECT_TRUE(claims.own.empty());
}

TEST_F(PortsTest, SpacesAreApart) {
  EXPECT_EQ(bind(1, binding_of(kOne)), 0);
  EXPECT_EQ(bind(2, {PortSpace::udp, kOne, false, false}), 0);
}

// Two may be bound, but only one of them may listen.
TEST_F(PortsTest, ReuseIsForBothOrNeither) {
  EXPECT_EQ(bind(1, binding_of(kOne, true)), 0);
  EXPECT_EQ(bind(2, binding_of(kOne, true)), 0);
  EXPECT_EQ(bind(3, binding_of(kOne)), EADDRINUSE);
  EXPECT_EQ(ports.check_listen(1, binding_of(kOne, true)), EADDRINUSE);
}

// An IPv4 id that does not say so takes the port for IPv6 as well, as IPV6_V6ONLY does in sockets.
TEST_F(PortsTest, FamiliesOfTheirOwnShareAPort) {
  const SocketAddress any6{srd::Address{}, kTestPort};
  EXPECT_EQ(bind(1, binding_of(kAny)), 0);
  EXPECT_EQ(bind(2, binding_of(any6, false, true)), EADDRNOTAVAIL);
  ports.change(1, binding_of(kAny, false, true));
  EXPECT_EQ(bind(2, binding_of(any6, false, true)), 0);
}

TEST_F(PortsTest, AnotherProcessMayHaveIt) {
  claims.taken.insert(service_id(PortSpace::tcp, kTestPort));
  EXPECT_EQ(bind(1, binding_of(kOne)), EADDRINUSE);
}

// Processes that connect from a port do not ask each other for it.
TEST_F(PortsTest, AnOutgoingPortIsClaimedWhenItListens) {
  Binding binding = binding_of(kOne);
  binding.outgoing = true;
  ASSERT_EQ(ports.bind(1, binding), 0);
  EXPECT_TRUE(claims.own.empty());
  EXPECT_EQ(bind(2, binding_of(kOne)), EADDRINUSE) << "in this process it is taken";
  claims.taken.insert(service_id(PortSpace::tcp, kTestPort));
  EXPECT_EQ(ports.claim(binding), EADDRINUSE);
  claims.taken.clear();
  EXPECT_EQ(ports.claim(binding), 0);
  EXPECT_EQ(ports.claim(binding), 0) << "once";
  ports.release(1, binding);
  EXPECT_TRUE(claims.own.empty());
}

TEST_F(PortsTest, FindsAFreePort) {
  std::set<std::uint16_t> found;
  for (std::uint32_t owner = 0; owner < 200; ++owner) {
    Binding binding = binding_of({srd::Address::v4(0, 0, 0, 0), 0});
    ASSERT_EQ(ports.bind(owner, binding), 0);
    EXPECT_GE(binding.address.port, 32768);
    EXPECT_LE(binding.address.port, 60999);
    EXPECT_TRUE(found.insert(binding.address.port).second);
  }
}

// All ports of the range are other processes': the search must end.
TEST_F(PortsTest, GivesUpWhereNoneIsFree) {
  for (std::uint32_t port = 32768; port <= 60999; ++port) {
    claims.taken.insert(service_id(PortSpace::tcp, static_cast<std::uint16_t>(port)));
  }
  EXPECT_EQ(bind(1, binding_of({srd::Address::v4(0, 0, 0, 0), 0})), EADDRNOTAVAIL);
}

struct Addresses : ::testing::Test {
  Handle id(PortSpace space = PortSpace::tcp, Transport transport = Transport::rc) {
    return *manager.create(space, transport);
  }
  World world{2};
  Manager& manager = *world.managers[0];
};

// As in Linux: bound to it, an id listens everywhere; resolved, it is the first NIC's own.
TEST_F(Addresses, LoopbackIsTheHost) {
  const srd::Address loopback = srd::Address::v4(127, 0, 0, 1);
  const Handle bound = id();
  EXPECT_EQ(manager.bind(bound, {loopback, 1}), 0);
  EXPECT_EQ(manager.bind(id(), {address_of(0), 1}), EADDRNOTAVAIL);
  EXPECT_FALSE(manager.look(bound).has_nic);
  const Handle resolved = id();
  EXPECT_EQ(manager.resolve_address(resolved, {}, {loopback, 2}), 0);
  EXPECT_EQ(manager.look(resolved).destination.ip, address_of(0));
  const Handle named = id();  // as Debian's /etc/hosts has it for the host's own name
  EXPECT_EQ(manager.resolve_address(named, {}, {srd::Address::v4(127, 0, 1, 1), 2}), 0);
  EXPECT_EQ(manager.look(named).destination.ip, address_of(0));
  EXPECT_EQ(manager.bind(id(), {srd::Address::v4(127, 78, 0, 2), 3}), EADDRNOTAVAIL)
      << "an emulated NIC's, and none of ours";
}

// A second bind of the same id is EINVAL; one of another id at the same place is EADDRINUSE.
TEST_F(Addresses, AreThoseOfTheNics) {
  const Handle one = id();
  EXPECT_EQ(manager.bind(one, {srd::Address::v4(10, 9, 0, 3), 1}), EADDRNOTAVAIL);
  EXPECT_EQ(manager.bind(one, {address_of(0), 1}), 0);
  EXPECT_EQ(manager.bind(one, {address_of(0), 1}), EINVAL);
  EXPECT_TRUE(manager.look(one).has_nic);
  EXPECT_EQ(manager.bind(id(), {address_of(0), 1}), EADDRINUSE);
  EXPECT_EQ(manager.bind(id(PortSpace::ipoib, Transport::ud), {address_of(0), 1}), EINVAL);
}

TEST_F(Addresses, AreFoundForADestination) {
  const Handle one = id();
  ASSERT_EQ(manager.resolve_address(one, {}, {address_of(1), kTestPort}), 0);
  const Connection& now = manager.look(one);
  EXPECT_EQ(now.binding.address.ip, address_of(0));
  EXPECT_NE(now.binding.address.port, 0);
  EXPECT_EQ(manager.resolve_address(one, {}, {address_of(1), kTestPort}), EINVAL);
  ASSERT_EQ(manager.resolve_route(one), 0);
  EXPECT_EQ(manager.resolve_route(one), EINVAL);
  EXPECT_EQ(now.path.destination, address_of(1));
}

TEST_F(Addresses, WithoutAWayAreAnEvent) {
  const Handle one = id();
  ASSERT_EQ(manager.resolve_address(one, {}, {world.reachability.nowhere, kTestPort}), 0);
  const Event event = world.next(0);
  EXPECT_EQ(event.kind, EventKind::address_error);
  EXPECT_EQ(event.status, -EHOSTUNREACH);
  EXPECT_EQ(manager.resolve_route(one), EINVAL);
  EXPECT_EQ(manager.resolve_address(one, {}, {address_of(1), kTestPort}), 0);  // another attempt
  EXPECT_EQ(world.next(0).kind, EventKind::address_resolved);
}

TEST_F(Addresses, OfAnotherFamilyAreRefused) {
  const Handle one = id();
  ASSERT_EQ(manager.bind(one, {address_of(0), 0}), 0);
  EXPECT_EQ(manager.resolve_address(one, {}, {srd::Address{}, kTestPort}), EINVAL);
}

TEST_F(Addresses, AnyAsADestinationIsOneself) {
  const Handle one = id();
  ASSERT_EQ(manager.resolve_address(one, {}, {srd::Address::v4(0, 0, 0, 0), kTestPort}), 0);
  EXPECT_EQ(manager.look(one).destination.ip, address_of(0));
}

TEST_F(Addresses, ListeningNeedsNone) {
  const Handle one = id();
  EXPECT_EQ(manager.listen(one, 0), 0);
  EXPECT_EQ(manager.look(one).backlog, kMaxBacklog);
  EXPECT_NE(manager.look(one).binding.address.port, 0);
  EXPECT_EQ(manager.listen(one, 0), EINVAL);
  EXPECT_EQ(manager.set_reuse(one, true), EINVAL);
}

// By the address that the request was sent to, as the port and the service are the same.
TEST_F(Addresses, TwoListenersOfOnePortAreToldApart) {
  Config config = config_of(0);
  config.addresses.push_back({srd::Address::v4(10, 9, 1, 1), 0, 2});
  OpenClaims claims;
  Manager both(config, claims, world.reachability);
  std::array<Handle, 2> listeners;
  for (std::size_t i = 0; i < 2; ++i) {
    listeners[i] = *both.create(PortSpace::tcp, Transport::rc);
    ASSERT_EQ(both.bind(listeners[i], {config.addresses[i].address, kTestPort}), 0);
    ASSERT_EQ(both.listen(listeners[i], 1), 0);
  }
  Manager& client = *world.managers[1];
  const Handle active = *client.create(PortSpace::tcp, Transport::rc);
  ASSERT_EQ(client.resolve_address(active, {}, {srd::Address::v4(10, 9, 1, 1), kTestPort}), 0);
  ASSERT_EQ(client.resolve_route(active), 0);
  ASSERT_EQ(client.connect(world.now, active, parameters_of(1)), 0);
  Outgoing request;
  ASSERT_TRUE(client.next_mad(world.now, request));
  both.on_mad(world.now, request.from, request.to, request.mad);
  Event event;
  ASSERT_TRUE(both.next_event(event));
  EXPECT_EQ(event.id, listeners[1]);
}

TEST_F(Addresses, IdsAreLimited) {
  Config config = config_of(0);
  config.max_ids = 3;
  OpenClaims claims;
  Manager few(config, claims, world.reachability);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(few.create(PortSpace::tcp, Transport::rc).has_value());
  }
  EXPECT_FALSE(few.create(PortSpace::tcp, Transport::rc).has_value());
}

}  // namespace
}  // namespace weft::roce::cm
