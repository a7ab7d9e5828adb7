// Tests that a ring which is added while a thread sleeps on the others can wake it.
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>

#include "srd/net/envelope.hpp"
#include "tests/unit/srd/io/conformance.hpp"
#include "tests/unit/srd/io/srd_carriers.hpp"

namespace weft::srd {
namespace {

constexpr std::size_t kRing = kMinRingBytes;
constexpr std::size_t kMtu = 1000;
constexpr std::size_t kFrame = net::max_frame_for(kMtu);

TEST(LatePort, WakesWhoSleepsAlready) {
  const Address own_address = test::ipv4(127, 1, 0, 1);
  const Address peer_address = test::ipv4(127, 1, 0, 2);
  auto pair = test::SrdRings::create_pair({.own = own_address, .mtu = kMtu},
                                          {.own = peer_address, .mtu = kMtu}, kRing);
  ASSERT_TRUE(pair) << pair.error().message;
  test::SrdRings& sleeper = *pair->first;
  ASSERT_TRUE(sleeper.arm());

  const auto memory = RingPort::create_memory(kRing);
  auto bells = Bell::create_pair();
  ASSERT_TRUE(memory && bells);
  auto own = RingPort::open(memory->get(), kRing, 0, kFrame, std::move(bells->first));
  auto peer = RingPort::open(memory->get(), kRing, 1, kFrame, std::move(bells->second));
  ASSERT_TRUE(own && peer);
  // As another thread does, which makes a round meanwhile and does not stay.
  ASSERT_TRUE(sleeper.add_direct({peer_address, AttachmentId{7}, Life{1}}, std::move(*own)));
  std::byte* const frame = peer->tx().reserve(100);
  ASSERT_NE(frame, nullptr);
  std::memset(frame, 0, 100);
  peer->tx().commit(100, {});
  peer->notify_peer();

  pollfd waits{sleeper.wait_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&waits, 1, 5000), 1);
}

}  // namespace
}  // namespace weft::srd
