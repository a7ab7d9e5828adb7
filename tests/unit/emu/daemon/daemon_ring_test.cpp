// Owns the tests of what becomes of rings, direct ones above all, when many want them, and when
// those at the other end die, stop or cheat.
//
// `start(false)`: every frame goes through weftd. `start(true)`: two processes that talk get a ring
// between them, which weftd hands out and takes back. An Intruder is a process that has attached
// properly and then writes into its rings by hand.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <set>

#include "emu/attach/protocol.hpp"
#include "srd/base/rng.hpp"
#include "srd/io/ring_ports.hpp"
#include "srd/net/envelope.hpp"
#include "srd/wire/srd_codec.hpp"
#include "tests/unit/emu/daemon/daemon_fixture.hpp"
#include "tests/unit/emu/daemon/intruder.hpp"

namespace weft::daemon {
namespace {

// A bell is a socket: a weftd that rang it in a blocking way would stop when it is full, and the
// owner of the other end may make it blocking.
TEST_F(DaemonTest, ABellThatNobodyReadsDoesNotBlockWeftd) {
  start(false);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  const Intruder intruder(*weftd_);
  const int flags = ::fcntl(intruder.bell.get(), F_GETFL);
  ASSERT_EQ(::fcntl(intruder.bell.get(), F_SETFL, flags & ~O_NONBLOCK), 0);
  for (std::uint32_t i = 0; i < 1000; ++i) {  // more rings than the bell holds
    intruder.asleep().store(1);
    const srd::TxPacket sent = packet(*a, intruder.place, i);
    ASSERT_EQ(a->io->transmit({&sent, 1}), 1U);
    ASSERT_TRUE(eventually([&] { return intruder.asleep().load() == 0; })) << "ring " << i;
  }
  EXPECT_TRUE(passes(*a, *b, 1));
}

// A ring that is full of garbage and never written again is looked at once. The records are well
// formed, with a frame of zeros in each, and the last one says that the next is at the beginning: a
// reader that did not know the laps apart would go round for ever.
TEST_F(DaemonTest, GarbageThatStaysInARingIsNoWorkForEver) {
  start(false);
  const Intruder intruder(*weftd_);
  const std::size_t capacity = intruder.memory.size() / 2 - srd::kRingHeaderBytes;
  std::byte* const area = intruder.memory.data() + capacity + 2 * srd::kRingHeaderBytes;
  const std::uint32_t length = 64;
  const std::size_t bytes = srd::ring_record_bytes(length);
  std::size_t records = 0;
  std::size_t offset = 0;
  for (; offset + bytes + srd::kRingCell <= capacity; offset += bytes, ++records) {
    std::memcpy(area + offset, &length, sizeof length);
  }
  std::memcpy(area + offset, &srd::kRingWrap, sizeof srd::kRingWrap);
  intruder.ring();
  const auto dropped = [&] {
    return status()["counters"]["dropped"]["malformed"].get<std::size_t>();
  };
  EXPECT_TRUE(eventually([&] { return dropped() >= records; }));
  // Time for another lap, if there is one.
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  EXPECT_EQ(dropped(), records);
}

// Good frames to another process, as fast as the ring takes them, into a network that they do not
// leave during the test: what is inside is capped, what finds no room is counted, and nothing else
// grows.
TEST_F(DaemonTest, AFloodWrittenByHandTakesTheMemoryThatTheNetworkMay) {
  constexpr std::size_t kMost = std::size_t{512} << 20;  // of the network, one sender's is half
  constexpr std::size_t kPacket = 4000;
  // As many as would fill the whole of it: twice what one sender may have inside.
  constexpr std::size_t kFrames = kMost / kPacket;
  DaemonOptions options;
  options.directory = directory_;
  fabric::Topology topology;
  const fabric::NodeId middle = topology.add_switch("sw");
  for (const char* host : {"h1", "h2"}) {
    topology.connect(topology.add_host(host), middle,
                     // So long that no frame leaves the network during the test.
                     {.rate = Rate::gbps(400), .delay = std::chrono::minutes{5}});
  }
  options.topology = topology;
  options.direct_rings = false;
  weftd_ = std::make_unique<Weftd>(options);
  auto b = join("h2");
  ASSERT_TRUE(b);
  Intruder intruder(*weftd_);
  const auto envelope =
      srd::net::EnvelopeWriter::make(intruder.place.address, srd::wire::SrdCodec::kPorts);
  ASSERT_TRUE(envelope);
  const srd::TxPacket sent = packet(intruder.place, *b, 1, kPacket);
  std::vector<std::byte> frame(envelope->size() + kPacket, std::byte{0x5A});
  ASSERT_TRUE(
      envelope->write(frame.data(), b->address, srd::PathId{0}, srd::Ecn::not_capable, 0, kPacket));
  std::memcpy(frame.data() + envelope->size(), sent.header.data(), sent.header_size);

  const std::size_t before = weftd_->resident();
  std::size_t most = before;
  srd::RingProducer ring(intruder.outgoing(), intruder.capacity());
  const auto patience = srd::monotonic_now() + std::chrono::seconds{60};
  for (std::size_t written = 0; written < kFrames && srd::monotonic_now() < patience;) {
    std::byte* const place = ring.reserve(frame.size());
    if (place == nullptr) {
      intruder.ring();
      most = std::max(most, weftd_->resident());
      std::this_thread::yield();
      continue;
    }
    ring.copy(place, frame);
    ring.commit(frame.size(), {.flags = srd::kRecordUnchecked});
    ++written;
  }
  intruder.ring();
  // Every frame is still inside, or was refused.
  json now;
  EXPECT_TRUE(eventually([&] {
    now = status();
    return now["fabric"]["inside"].get<std::size_t>() +
               now["counters"]["dropped"]["network_full"].get<std::size_t>() ==
           kFrames;
  })) << now;
  EXPECT_GT(now["counters"]["dropped"]["network_full"].get<std::size_t>(), kFrames / 4);
  // Half for the frames, and 64 MiB for what is kept of each.
  EXPECT_LE(std::max(most, weftd_->resident()) - before, kMost / 2 + (std::size_t{64} << 20));
  // With so many frames inside it would be minutes in coming to an end by itself.
  EXPECT_EQ(weftd_->kill(SIGKILL), SIGKILL);
}

// A writer that does not even wait for room writes over what weftd reads, lap after lap: records of
// one size in even turns, of random sizes in odd ones.
TEST_F(DaemonTest, AWriterWhoNeverWaitsForRoomCostsNoMemory) {
  start(false);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  ASSERT_TRUE(passes(*a, *b, 1));
  const std::size_t before = weftd_->resident();
  std::size_t most = before;
  // A process of its own in each turn: a ring that was cut off stays so.
  for (std::uint32_t turn = 0; turn < 8; ++turn) {
    Intruder intruder(*weftd_);
    std::byte* const area = intruder.outgoing() + srd::kRingHeaderBytes;
    Rng rng(turn);
    const std::size_t records = intruder.capacity() / srd::kRingCell;
    for (std::uint32_t lap = 0; lap < 64; ++lap) {
      for (std::size_t i = 0; i < records; ++i) {
        const std::uint32_t length = turn % 2 == 0 ? 40 : rng.below(100);
        const std::uint32_t word = lap * srd::kRingLap + length;
        std::memcpy(area + i * srd::kRingCell, &word, sizeof word);
      }
      intruder.ring();
      most = std::max(most, weftd_->resident());
    }
    ASSERT_TRUE(passes(*a, *b, 2 + turn));
  }
  EXPECT_LE(most - before, std::size_t{16} << 20);
  EXPECT_TRUE(weftd_->alive());
}

// Each process has a bell of its own, and only a bell wakes a weftd that sleeps. One whose socket
// is full must not keep the bells of others from being heard.
TEST_F(DaemonTest, AFloodedBellSilencesNobodyElses) {
  start(false);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  const Intruder intruder(*weftd_);
  const std::byte ring[1]{};
  for (std::uint32_t i = 1; i <= 20; ++i) {
    while (::send(intruder.bell.get(), ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    ASSERT_TRUE(passes(*a, *b, i));
    std::this_thread::sleep_for(std::chrono::milliseconds{2});  // in which weftd falls asleep
  }
  ASSERT_TRUE(weftd_->alive());
}

// From the moment that both have it weftd counts none of their frames any more.
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

// The child is a real process, so that its end is noticed as ends are: by a socket. Then its peer
// has to lose the ring, or it would send into memory that no process reads.
TEST_F(DaemonTest, AKilledProcessLeavesAndItsPeersLoseTheRing) {
  start(true);
  auto a = join("h1");
  ASSERT_TRUE(a);
  const pid_t child = ::fork();
  if (child == 0) {
    auto b = join("h2");
    const srd::TxPacket sent = packet(*b, *a, 7);
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

// Processes that hand in a frame and are gone before weftd comes to give them a ring. If anything
// of their rings stayed, `a` would soon have no room for that of a living process.
TEST_F(DaemonTest, OfThoseWhoDieAtOnceNoRingsStay) {
  start(true);
  auto a = join("h1");
  ASSERT_TRUE(a);
  for (std::uint32_t i = 1; i <= 100; ++i) {
    auto b = join("h2");
    ASSERT_TRUE(b);
    const srd::TxPacket sent = packet(*b, *a, i);
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

// Those that find no room for a ring go on through weftd.
TEST_F(DaemonTest, MorePeersThanAProcessHasRoomForReachItAllTheSame) {
  start(true);
  auto a = join("h1");
  ASSERT_TRUE(a);
  std::vector<attach::Attachment> peers;
  for (std::uint32_t i = 0; i < srd::RingPorts::kMaxDirectPorts + 6; ++i) {
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
  EXPECT_EQ(a->io->direct_ports(), srd::RingPorts::kMaxDirectPorts);
}

// The ring of a process that ended is read to its end, and does not use up one of its reader's
// direct ports meanwhile.
TEST_F(DaemonTest, WhoTakesThePlaceOfADeadOneIsReadAsWell) {
  start(true);
  auto a = join("h1");
  ASSERT_TRUE(a);
  std::vector<attach::Attachment> peers;
  for (std::uint32_t i = 0; i < srd::RingPorts::kMaxDirectPorts; ++i) {
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
    return a->io->direct_ports() == srd::RingPorts::kMaxDirectPorts;
  }));
  for (std::uint32_t i = 0; i < 100; ++i) {
    const srd::TxPacket unread = packet(peers.front(), *a, 500);
    ASSERT_EQ(peers.front().io->transmit({&unread, 1}), 1U);
  }
  peers.erase(peers.begin());
  ASSERT_TRUE(
      eventually([&] { return status()["direct_pairs"] == srd::RingPorts::kMaxDirectPorts - 1; }));
  auto heir = join("h2");
  ASSERT_TRUE(heir);
  const srd::TxPacket first = packet(*heir, *a, 600);
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

// Two rings with a thousand packets (all called 0) and four with one: within four bursts of the
// reader all must have had their turn. A reader that emptied one ring first would hear 0 only.
TEST_F(DaemonTest, AFloodStarvesNobody) {
  start(true);
  auto a = join("h1");
  ASSERT_TRUE(a);
  std::vector<attach::Attachment> peers;
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
  const auto send = [&](attach::Attachment& from, std::uint32_t number) {
    const srd::TxPacket sent = packet(from, *a, number);
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

// Any words over the whole memory, headers of both rings included, with sensible lengths among
// them, so that weftd reads on. It cuts such a ring off, and serves the others.
TEST_F(DaemonTest, GarbageInARingHurtsOnlyItsOwner) {
  start(false);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const Intruder intruder(*weftd_);
    const srd::Mapping& memory = intruder.memory;
    Rng rng(seed);
    for (std::size_t i = 0; i + 8 <= memory.size(); i += 8) {
      const std::uint64_t word = rng.chance(0.3) ? rng.below(6000) : rng.next();
      std::memcpy(memory.data() + i, &word, sizeof word);
    }
    intruder.ring();  // unless it is cut off already
    ASSERT_TRUE(passes(*a, *b, static_cast<std::uint32_t>(seed))) << "seed " << seed;
    ASSERT_TRUE(weftd_->alive()) << "seed " << seed;
  }
}

// Its ring fills up; frames for it must then be dropped, since they stand in the sender's ring
// before those for others.
TEST_F(DaemonTest, AProcessThatNeverReadsBlocksNobodyForLong) {
  start(false);
  auto a = join("h1");
  auto deaf = join("h2");
  auto b = join("h2");
  ASSERT_TRUE(a && deaf && b);
  const srd::TxPacket flood = packet(*a, *deaf, 1, 1000);
  const std::size_t more_than_all_rings_hold = 3 * weftd_->options().ring_bytes / 1000;
  std::size_t taken = 0;
  EXPECT_TRUE(eventually([&] {
    // All that there is room for: a process that yields the core after each may get it back
    // milliseconds later.
    while (taken <= more_than_all_rings_hold && a->io->transmit({&flood, 1}) == 1) {
      ++taken;
    }
    return taken > more_than_all_rings_hold;
  }));
  EXPECT_TRUE(eventually([&] {
    const srd::TxPacket sent = packet(*a, *b, 2);
    return a->io->transmit({&sent, 1}) == 1;
  }));
  EXPECT_TRUE(arrives(*b, 2));
  EXPECT_GT(status()["counters"]["dropped"]["not_receiving"], 0);
}

// It makes room for a frame now and then, so it never looks as if it had stopped.
TEST_F(DaemonTest, AProcessThatReadsSlowlySlowsNobodyElse) {
  start(false);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  const Intruder slow(*weftd_);
  // How far its reader has come in the ring that weftd writes: moved on by hand, a frame at a time.
  std::atomic_ref<std::uint64_t> consumed(
      *reinterpret_cast<std::uint64_t*>(slow.memory.data() + offsetof(srd::RingHeader, consumed)));
  // What `b` hears in that time, when every other packet is for the slow one, or none.
  const auto rounds = [&](Duration time, bool to_slow = true) {
    std::size_t heard = 0;
    const TimePoint end = srd::monotonic_now() + time;
    while (srd::monotonic_now() < end) {
      const srd::TxPacket sent[] = {packet(*a, to_slow ? slow.place : *b, 1, to_slow ? 4000 : 64),
                                    packet(*a, *b, 2)};
      (void)a->io->transmit({sent, std::min<std::size_t>(a->io->transmit_room(), 2)});
      heard += b->io->receive().size();
      b->io->release();
      std::this_thread::yield();
    }
    return heard;
  };
  const auto dropped = [&] { return status()["counters"]["dropped"]["not_receiving"].get<int>(); };
  // Until its ring is full and weftd has lost patience with it.
  ASSERT_TRUE(eventually([&] {
    (void)rounds(std::chrono::milliseconds{5});
    return dropped() > 0;
  }));
  // Beside what is heard without any trouble, in turns: the machine has its own ups and downs.
  std::size_t heard = 0;
  std::size_t undisturbed = 0;
  for (int read = 0; read < 50; ++read) {
    consumed.store(consumed.load() + srd::ring_record_bytes(4042));
    heard += rounds(std::chrono::milliseconds{5});
    undisturbed += rounds(std::chrono::milliseconds{5}, false);
  }
  // At least a twentieth: without care nothing would be heard at all.
  EXPECT_GT(20 * heard, undisturbed);
}

// A full direct ring must not hold up what goes to others. The child gets a ring to `a` and is
// stopped, as by a debugger; its ring fills up, and what follows for it is dropped, until it goes
// on.
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
    const srd::TxPacket hello = packet(*b, *a, 7);
    // The parent needs the number of this place to send there.
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
  srd::TxPacket flood = packet(*a, *c, 1, 1000);
  // To the child, whose place is known here by its number only.
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
}  // namespace weft::daemon
