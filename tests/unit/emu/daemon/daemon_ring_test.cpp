// Owns what becomes of rings, direct ones above all, when many want them, and when those at the
// other end die, stop or cheat.
#include <gtest/gtest.h>

#include <set>

#include "emu/daemon/attach_protocol.hpp"
#include "srd/base/rng.hpp"
#include "srd/io/ring_io.hpp"
#include "tests/unit/emu/daemon/daemon_fixture.hpp"

namespace weft::emu {
namespace {

TEST_F(DaemonTest, GivesTwoLocalProcessesADirectRing) {
  start(true);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  ASSERT_TRUE(passes(*a, *b, 1));
  EXPECT_TRUE(eventually([&] {
    poll_once(*a);
    poll_once(*b);
    return a->io->direct_ports() == 1 && b->io->direct_ports() == 1;
  }));
  const auto before = status()["counters"]["frames"].get<int>();
  for (std::uint32_t i = 2; i < 100; ++i) {
    ASSERT_TRUE(passes(*a, *b, i));
    ASSERT_TRUE(passes(*b, *a, i));
  }
  EXPECT_EQ(status()["counters"]["frames"].get<int>(), before);
}

TEST_F(DaemonTest, AKilledProcessLeavesAndItsPeersLoseTheRing) {
  start(true);
  auto a = join("h1");
  ASSERT_TRUE(a);
  const pid_t child = ::fork();
  if (child == 0) {
    auto b = join("h2");
    const srd::TxPacket sent = packet(*a, 7);
    while (b) {  // the rings of `a` are the parent's
      [[maybe_unused]] const auto taken = b->io->transmit({&sent, 1});
      poll_once(*b);
      std::this_thread::yield();
    }
    _exit(1);
  }
  ASSERT_TRUE(arrives(*a, 7));
  ASSERT_TRUE(eventually([&] {
    poll_once(*a);
    return a->io->direct_ports() == 1;
  }));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(eventually([&] {
    poll_once(*a);
    return a->io->direct_ports() == 0;
  }));
  EXPECT_EQ(status()["direct_pairs"], 0);
  auto c = join("h2");
  ASSERT_TRUE(c);
  EXPECT_TRUE(passes(*c, *a, 9));
}

// They hand in a frame and are gone before weftd gets round to giving them a ring.
TEST_F(DaemonTest, OfThoseWhoDieAtOnceNoRingsStay) {
  start(true);
  auto a = join("h1");
  ASSERT_TRUE(a);
  for (std::uint32_t i = 1; i <= 100; ++i) {
    auto b = join("h2");
    ASSERT_TRUE(b);
    const srd::TxPacket sent = packet(*a, i);
    ASSERT_EQ(b->io->transmit({&sent, 1}), 1U);
  }
  EXPECT_TRUE(eventually([&] {
    poll_once(*a);
    return status()["direct_pairs"] == 0;
  }));
  auto last = join("h2");
  ASSERT_TRUE(last);
  ASSERT_TRUE(passes(*last, *a, 1000));
  EXPECT_TRUE(eventually([&] {
    poll_once(*a);
    poll_once(*last);
    return a->io->direct_ports() == 1 && last->io->direct_ports() == 1;
  }));
}

TEST_F(DaemonTest, MorePeersThanAProcessHasRoomForReachItAllTheSame) {
  start(true);
  auto a = join("h1");
  ASSERT_TRUE(a);
  std::vector<Attachment> peers;
  for (std::uint32_t i = 0; i < srd::RingIo::kMaxDirectPorts + 6; ++i) {
    auto peer = join("h2");
    ASSERT_TRUE(peer) << peer.error().message;
    peers.push_back(std::move(*peer));
    ASSERT_TRUE(passes(peers.back(), *a, i + 1));
  }
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < peers.size(); ++i) {
      poll_once(peers[i]);  // hears of its ring
      ASSERT_TRUE(passes(peers[i], *a, 1000 + i)) << "peer " << i;
      ASSERT_TRUE(passes(*a, peers[i], 2000 + i)) << "peer " << i;
    }
  }
  EXPECT_EQ(a->io->direct_ports(), srd::RingIo::kMaxDirectPorts);
}

// The ring of one that ended is read to its end, and takes nobody's place meanwhile.
TEST_F(DaemonTest, WhoTakesThePlaceOfADeadOneIsReadAsWell) {
  start(true);
  auto a = join("h1");
  ASSERT_TRUE(a);
  std::vector<Attachment> peers;
  for (std::uint32_t i = 0; i < srd::RingIo::kMaxDirectPorts; ++i) {
    auto peer = join("h2");
    ASSERT_TRUE(peer);
    peers.push_back(std::move(*peer));
    ASSERT_TRUE(passes(peers.back(), *a, i + 1));
    ASSERT_TRUE(eventually([&] {
      poll_once(peers.back());
      return peers.back().io->direct_ports() == 1;
    }));
  }
  ASSERT_TRUE(eventually([&] {
    poll_once(*a);
    return a->io->direct_ports() == srd::RingIo::kMaxDirectPorts;
  }));
  for (std::uint32_t i = 0; i < 100; ++i) {
    const srd::TxPacket unread = packet(*a, 500);
    ASSERT_EQ(peers.front().io->transmit({&unread, 1}), 1U);
  }
  peers.erase(peers.begin());
  ASSERT_TRUE(
      eventually([&] { return status()["direct_pairs"] == srd::RingIo::kMaxDirectPorts - 1; }));
  auto heir = join("h2");
  ASSERT_TRUE(heir);
  const srd::TxPacket first = packet(*a, 600);
  ASSERT_EQ(heir->io->transmit({&first, 1}), 1U);
  ASSERT_TRUE(eventually([&] {
    poll_once(*heir);
    return heir->io->direct_ports() == 1;
  }));
  EXPECT_TRUE(arrives(*a, 600));
  for (std::uint32_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(passes(*heir, *a, 700 + i));
  }
}

TEST_F(DaemonTest, AFloodStarvesNobody) {
  start(true);
  auto a = join("h1");
  ASSERT_TRUE(a);
  std::vector<Attachment> peers;
  for (std::uint32_t i = 0; i < 6; ++i) {
    auto peer = join("h2");
    ASSERT_TRUE(peer);
    peers.push_back(std::move(*peer));
    ASSERT_TRUE(passes(peers.back(), *a, i + 1));
    ASSERT_TRUE(eventually([&] {
      poll_once(*a);
      poll_once(peers.back());
      return a->io->direct_ports() == i + 1 && peers.back().io->direct_ports() == 1;
    }));
  }
  const auto send = [&](Attachment& from, std::uint32_t number) {
    const srd::TxPacket sent = packet(*a, number);
    EXPECT_EQ(from.io->transmit({&sent, 1}), 1U);
  };
  for (std::uint32_t i = 0; i < 1000; ++i) {
    send(peers[0], 0);
    send(peers[1], 0);
  }
  for (std::uint32_t i = 2; i < peers.size(); ++i) {
    send(peers[i], i);
  }
  std::set<std::uint32_t> heard;
  for (int burst = 0; burst < 4; ++burst) {
    for (const srd::RxPacket& received : a->io->receive()) {
      heard.insert(number_of(received));
    }
    a->io->release();
  }
  EXPECT_EQ(heard, (std::set<std::uint32_t>{0, 2, 3, 4, 5}));
}

TEST_F(DaemonTest, GarbageInARingHurtsOnlyItsOwner) {
  start(false);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    auto socket = connect_seqpacket(directory_ + "/attach.sock");
    ASSERT_TRUE(socket);
    ASSERT_TRUE(send_struct(socket->get(), AttachRequest{}));
    Received received = await_message(socket->get(), 5000);
    const auto reply = received.as<AttachReply>();
    ASSERT_TRUE(reply && received.fds.size() == 3);
    auto memory = srd::Mapping::map(received.fds[0].get(), srd::ring_pair_bytes(reply->ring_bytes));
    ASSERT_TRUE(memory);
    Rng rng(seed);
    for (std::size_t i = 0; i + 8 <= memory->size(); i += 8) {
      const std::uint64_t word = rng.chance(0.3) ? rng.below(6000) : rng.next();
      std::memcpy(memory->data() + i, &word, sizeof word);
    }
    srd::ring_doorbell(received.fds[2].get());
    ASSERT_TRUE(passes(*a, *b, static_cast<std::uint32_t>(seed))) << "seed " << seed;
    ASSERT_TRUE(weftd_->alive()) << "seed " << seed;
  }
}

TEST_F(DaemonTest, AProcessThatNeverReadsBlocksNobodyForLong) {
  start(false);
  auto a = join("h1");
  auto deaf = join("h2");
  auto b = join("h2");
  ASSERT_TRUE(a && deaf && b);
  const srd::TxPacket flood = packet(*deaf, 1, 1000);
  const std::size_t more_than_all_rings_hold = 3 * weftd_->options().ring_bytes / 1000;
  std::size_t taken = 0;
  EXPECT_TRUE(eventually([&] {
    taken += a->io->transmit({&flood, 1});
    return taken > more_than_all_rings_hold;
  }));
  EXPECT_TRUE(eventually([&] {
    const srd::TxPacket sent = packet(*b, 2);
    return a->io->transmit({&sent, 1}) == 1;
  }));
  EXPECT_TRUE(arrives(*b, 2));
  EXPECT_GT(status()["counters"]["dropped"]["not_receiving"], 0);
}

// A full direct ring must not hold up what goes to others.
TEST_F(DaemonTest, AStoppedPeerBlocksNobodyElse) {
  start(true);
  auto a = join("h1");
  auto c = join("h2");
  ASSERT_TRUE(a && c);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto b = join("h2");
    const srd::TxPacket hello = packet(*a, 7);
    const std::uint8_t id = b ? static_cast<std::uint8_t>(b->id.value()) : 0;
    [[maybe_unused]] const auto told = ::write(ready[1], &id, 1);
    while (b) {
      [[maybe_unused]] const auto taken = b->io->transmit({&hello, 1});
      poll_once(*b);
      std::this_thread::yield();
    }
    _exit(1);
  }
  std::uint8_t id = 0;
  ASSERT_EQ(::read(ready[0], &id, 1), 1);
  ASSERT_TRUE(eventually([&] {
    poll_once(*a);
    return a->io->direct_ports() == 1;
  }));
  ::kill(child, SIGSTOP);
  srd::TxPacket flood = packet(*c, 1, 1000);
  flood.header[srd::wire::kDestinationAttachmentOffset + 1] = std::byte{id};
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 100; ++i) {
      [[maybe_unused]] const auto taken = a->io->transmit({&flood, 1});
    }
    return a->io->counters().tx_stalled > 100;
  }));
  EXPECT_GT(a->io->transmit_room(), 0U);
  for (std::uint32_t i = 100; i < 200; ++i) {
    [[maybe_unused]] const auto taken = a->io->transmit({&flood, 1});
    ASSERT_TRUE(passes(*a, *c, i));
  }
  ::kill(child, SIGCONT);
  const auto stalled = a->io->counters().tx_stalled;
  EXPECT_TRUE(eventually([&] {
    const auto before = a->io->counters().tx_packets;
    [[maybe_unused]] const auto taken = a->io->transmit({&flood, 1});
    poll_once(*a);
    return a->io->counters().tx_packets > before;
  })) << stalled
      << " were dropped";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace weft::emu
