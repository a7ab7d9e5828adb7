// Owns what every carrier of packets must do, whatever it is made of.
//
// The same cases run over every carrier (carriers.cpp), each with two ends in this process. What a
// carrier cannot do it says in its capabilities, and only then a case asks less of it. A carrier
// that this machine lacks (no DPDK, no namespaces) is skipped.
#include "tests/unit/srd/io/conformance.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <stdexcept>
#include <thread>

#include "srd/base/rng.hpp"

namespace weft::srd::test {
namespace {

constexpr std::uint64_t kSeed = 42;

// Two ends of a carrier. A carrier that this machine cannot have is skipped, with the reason.
class Conformance : public testing::TestWithParam<Carrier> {
 protected:
  void SetUp() override {
    try {
      pair_ = GetParam().make();
    } catch (const std::runtime_error& reason) {
      GTEST_SKIP() << reason.what();
    }
    payload_.resize(1 << 16);
    Rng rng(kSeed);
    for (auto& byte : payload_) {
      byte = static_cast<std::byte>(rng.next());
    }
  }

  // A packet with a number in its header and a slice of the pattern that depends on the number.
  TxPacket make(std::uint32_t number, std::size_t size, std::uint16_t path = 0) const {
    TxPacket packet;
    packet.to = pair_.second_address;
    packet.path = PathId{path};
    packet.header_size = 32;
    std::memset(packet.header.data(), 0, 32);
    std::memcpy(packet.header.data() + 28, &number, sizeof number);
    const std::size_t rest = size - 32;
    const std::size_t begin = number % 1000;
    packet.payload[0] = {payload_.data() + begin, rest / 3};
    packet.payload[1] = {payload_.data() + begin + rest / 3, rest - rest / 3};
    return packet;
  }
  static std::uint32_t number_of(const RxPacket& packet) {
    std::uint32_t number = 0;
    std::memcpy(&number, packet.bytes.data() + 28, sizeof number);
    return number;
  }
  void expect_intact(const RxPacket& packet, std::size_t size) const {
    ASSERT_EQ(packet.bytes.size() + packet.more.size(), size);
    const std::size_t begin = number_of(packet) % 1000;
    std::vector<std::byte> whole(packet.bytes.begin(), packet.bytes.end());
    whole.insert(whole.end(), packet.more.begin(), packet.more.end());
    EXPECT_EQ(std::memcmp(whole.data() + 32, payload_.data() + begin, size - 32), 0);
  }
  // As two pollers would, all the time.
  void poll_senders() const {
    [[maybe_unused]] const auto one = pair_.first->transmit_room();
    [[maybe_unused]] const auto other = pair_.second->transmit_room();
  }
  // Receives until a packet comes. Carriers through the kernel may take a moment.
  std::span<const RxPacket> await(PacketIo& io) const {
    for (int i = 0; i < 100'000; ++i) {
      poll_senders();
      const auto packets = io.receive();
      if (!packets.empty()) {
        return packets;
      }
      std::this_thread::yield();
    }
    return {};
  }

  IoPair pair_;
  std::vector<std::byte> payload_;
};

TEST_P(Conformance, NothingArrivesWhereNothingWasSent) {
  EXPECT_TRUE(pair_.first->receive().empty());
  pair_.first->release();
  EXPECT_TRUE(pair_.second->receive().empty());
}

// The smallest packet, odd sizes, and the MTU itself: a carrier that promises an MTU must carry a
// packet of that size.
TEST_P(Conformance, CarriesBytesAddressPathAndEcn) {
  const auto capabilities = pair_.second->capabilities();
  const std::size_t mtu = capabilities.mtu;
  std::uint32_t number = 1;
  for (const std::size_t size :
       {std::size_t{32}, std::size_t{64}, std::size_t{1000}, mtu - 1, mtu}) {
    for (const Ecn ecn : {Ecn::capable_0, Ecn::congested}) {
      TxPacket packet = make(number, size, static_cast<std::uint16_t>(number % 4));
      packet.ecn = ecn;
      ASSERT_EQ(pair_.first->transmit({&packet, 1}), 1U);
      const auto received = await(*pair_.second);
      ASSERT_EQ(received.size(), 1U) << "size " << size;
      EXPECT_EQ(number_of(received[0]), number);
      EXPECT_EQ(received[0].from, pair_.first_address);
      EXPECT_EQ(received[0].path.value(), number % 4);
      if (capabilities.reads_ecn && pair_.first->capabilities().writes_ecn) {
        EXPECT_EQ(received[0].ecn, ecn);
      }
      expect_intact(received[0], size);
      pair_.second->release();
      ++number;
    }
  }
}

// Few enough for any carrier to hold: none may be lost, whatever order they come in.
TEST_P(Conformance, ABurstOfMixedSizesAndPathsArrivesIntact) {
  const std::size_t mtu = pair_.first->capabilities().mtu;
  Rng rng(kSeed);
  std::vector<std::size_t> sizes;
  std::vector<TxPacket> packets;
  for (std::uint32_t i = 0; i < 24; ++i) {
    sizes.push_back(rng.chance(0.3) ? rng.between(32, 800) : 800);
    packets.push_back(make(i, sizes[i], static_cast<std::uint16_t>(rng.below(4))));
    packets[i].ecn = rng.chance(0.2) ? Ecn::congested : Ecn::capable_0;
  }
  ASSERT_LT(sizes[0], mtu);
  std::size_t sent = 0;
  std::vector<bool> seen(packets.size());
  std::size_t arrived = 0;
  while (arrived < packets.size()) {
    sent += pair_.first->transmit(std::span(packets).subspan(sent));
    const auto received = await(*pair_.second);
    ASSERT_FALSE(received.empty()) << arrived << " arrived, seed " << kSeed;
    for (const RxPacket& packet : received) {
      const std::uint32_t number = number_of(packet);
      ASSERT_LT(number, packets.size());
      EXPECT_FALSE(seen[number]);
      seen[number] = true;
      EXPECT_EQ(packet.path, packets[number].path);
      EXPECT_EQ(packet.ecn, packets[number].ecn);
      expect_intact(packet, sizes[number]);
      ++arrived;
    }
    pair_.second->release();
  }
  EXPECT_TRUE(pair_.second->receive().empty());
}

// Refusing it would make the caller offer the same packet for ever.
TEST_P(Conformance, OversizePacketsAreTakenDroppedAndCounted) {
  const TxPacket packet = make(1, pair_.first->capabilities().mtu + 1);
  const IoCounters before = pair_.first->counters();
  EXPECT_EQ(pair_.first->transmit({&packet, 1}), 1U);
  EXPECT_EQ(pair_.first->counters().tx_oversize, before.tx_oversize + 1);
  EXPECT_EQ(pair_.first->counters().tx_packets, before.tx_packets);
  EXPECT_TRUE(pair_.second->receive().empty());
}

// The receiver does not look until the sender is refused. Then everything that was taken has to
// come, in order.
TEST_P(Conformance, BackPressureLosesNothing) {
  if (!GetParam().loses_nothing) {
    GTEST_SKIP() << "this carrier may lose packets when its receiver does not keep up";
  }
  std::vector<TxPacket> packets;
  std::uint32_t sent = 0;
  bool refused = false;
  while (!refused && sent < 100'000) {
    packets.assign(8, make(0, 64));
    for (std::uint32_t i = 0; i < 8; ++i) {
      packets[i] = make(sent + i, 64 + (sent + i) * 37 % 4000);
    }
    const std::size_t taken = pair_.first->transmit(packets);
    refused = taken < packets.size();
    sent += static_cast<std::uint32_t>(taken);
  }
  EXPECT_TRUE(refused);
  EXPECT_LT(pair_.first->transmit_room(), 8U);
  std::uint32_t expected = 0;
  while (expected < sent) {
    const auto received = await(*pair_.second);
    ASSERT_FALSE(received.empty()) << "after " << expected << " of " << sent;
    for (const RxPacket& packet : received) {
      ASSERT_EQ(number_of(packet), expected);
      expect_intact(packet, 64 + expected * 37 % 4000);
      ++expected;
    }
    pair_.second->release();
  }
  EXPECT_GT(pair_.first->transmit_room(), 0U);
}

// A Machine is asked for as many packets as there is room for, and those must be taken whatever
// their size: there is nowhere to keep one that was not.
TEST_P(Conformance, RoomIsAPromise) {
  const std::size_t mtu = pair_.first->capabilities().mtu;
  Rng rng(kSeed);
  std::uint32_t sent = 0;
  std::uint32_t got = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::size_t room = std::min<std::size_t>(pair_.first->transmit_room(), 32);
    std::vector<TxPacket> packets;
    for (std::size_t i = 0; i < room; ++i) {
      const std::size_t size = rng.chance(0.5) ? mtu : rng.between(32, mtu);
      packets.push_back(make(sent + static_cast<std::uint32_t>(i), size));
    }
    ASSERT_EQ(pair_.first->transmit(packets), room) << "seed " << kSeed << " round " << round;
    sent += static_cast<std::uint32_t>(room);
    if (rng.chance(0.4)) {
      got += static_cast<std::uint32_t>(pair_.second->receive().size());
      pair_.second->release();
    }
  }
  EXPECT_GT(sent, 100U);
  if (GetParam().loses_nothing) {
    while (got < sent) {
      const auto received = await(*pair_.second);
      ASSERT_FALSE(received.empty());
      got += static_cast<std::uint32_t>(received.size());
      pair_.second->release();
    }
  }
}

// arm() is the last look before sleep. If it did not see a packet that came before it, the sleeper
// would not be woken for that packet.
TEST_P(Conformance, ArmRefusesWhenSomethingIsThere) {
  // A kernel may have something to say of its own.
  const auto falls_asleep = [&] {
    for (int i = 0; i < 1000; ++i) {
      if (pair_.second->arm()) {
        pair_.second->disarm();
        return true;
      }
      EXPECT_TRUE(pair_.second->receive().empty());
      pair_.second->release();
    }
    return false;
  };
  EXPECT_TRUE(falls_asleep());
  const TxPacket packet = make(1, 64);
  ASSERT_EQ(pair_.first->transmit({&packet, 1}), 1U);
  bool quiet = true;
  for (int i = 0; quiet && i < 100'000; ++i) {
    poll_senders();
    quiet = pair_.second->arm();
    if (quiet) {
      pair_.second->disarm();
      std::this_thread::yield();
    }
  }
  EXPECT_FALSE(quiet);
  EXPECT_EQ(await(*pair_.second).size(), 1U);
  pair_.second->release();
  EXPECT_TRUE(falls_asleep());
}

TEST_P(Conformance, APacketWakesTheSleeper) {
  if (pair_.second->wait_fd() < 0) {
    GTEST_SKIP() << "this carrier has nothing to sleep on";
  }
  for (std::uint32_t round = 0; round < 5; ++round) {
    while (!pair_.second->arm()) {  // a kernel may have something to say of its own
      EXPECT_TRUE(pair_.second->receive().empty());
      pair_.second->release();
    }
    pollfd fd{pair_.second->wait_fd(), POLLIN, 0};
    const TxPacket packet = make(round, 64);
    ASSERT_EQ(pair_.first->transmit({&packet, 1}), 1U);
    EXPECT_EQ(::poll(&fd, 1, 5000), 1) << "round " << round;
    pair_.second->disarm();
    EXPECT_EQ(await(*pair_.second).size(), 1U);
    pair_.second->release();
  }
}

// While one thread polls, another one sleeps until it is needed. If packets woke that one, both
// would run for each packet, and with more threads than cores stand in each other's way.
TEST_P(Conformance, APacketWakesNobodyWhileItIsNotArmed) {
  if (pair_.second->wait_fd() < 0 || !GetParam().drives_hosts) {
    GTEST_SKIP() << "no thread sleeps on this carrier while another one polls it";
  }
  const auto wakes = [&](int milliseconds) {
    pollfd fd{pair_.second->wait_fd(), POLLIN, 0};
    return ::poll(&fd, 1, milliseconds) == 1;
  };
  // Unarmed from the beginning, after disarm(), and after an arm() that refuses.
  for (std::uint32_t round = 0; round < 3; ++round) {
    const TxPacket packet = make(round, 64);
    ASSERT_EQ(pair_.first->transmit({&packet, 1}), 1U);
    EXPECT_FALSE(wakes(20)) << "round " << round;
    EXPECT_FALSE(pair_.second->arm());
    EXPECT_FALSE(wakes(20)) << "round " << round;
    EXPECT_EQ(await(*pair_.second).size(), 1U);
    pair_.second->release();
    ASSERT_TRUE(pair_.second->arm());
    EXPECT_FALSE(wakes(0)) << "round " << round;
    pair_.second->disarm();
  }
}

// Two threads, one that sleeps whenever it finds nothing: a lost wake-up would stop the exchange.
TEST_P(Conformance, SleepersAcrossThreadsNeverMissAPacket) {
  if (pair_.second->wait_fd() < 0) {
    GTEST_SKIP() << "this carrier has nothing to sleep on";
  }
  constexpr std::uint32_t kRounds = 2000;
  const Address back = pair_.first_address;
  std::thread echo([&] {
    for (std::uint32_t done = 0; done < kRounds;) {
      const auto received = pair_.second->receive();
      for ([[maybe_unused]] const RxPacket& packet : received) {
        TxPacket answer = make(done++, 64);
        answer.to = back;
        while (pair_.second->transmit({&answer, 1}) == 0) {
        }
      }
      pair_.second->release();
      if (received.empty() && pair_.second->arm()) {
        pollfd fd{pair_.second->wait_fd(), POLLIN, 0};
        EXPECT_EQ(::poll(&fd, 1, 10'000), 1) << "after " << done;
        pair_.second->disarm();
      }
    }
  });
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const TxPacket packet = make(round, 64);
    while (pair_.first->transmit({&packet, 1}) == 0) {
    }
    bool answered = false;
    while (!answered) {
      answered = !pair_.first->receive().empty();
      pair_.first->release();
      if (!answered && pair_.first->arm()) {
        pollfd fd{pair_.first->wait_fd(), POLLIN, 0};
        ASSERT_EQ(::poll(&fd, 1, 10'000), 1) << "round " << round;
        pair_.first->disarm();
      }
    }
  }
  echo.join();
}

INSTANTIATE_TEST_SUITE_P(Carriers, Conformance, testing::ValuesIn(carriers()),
                         [](const auto& carrier) { return carrier.param.name; });

}  // namespace
}  // namespace weft::srd::test
