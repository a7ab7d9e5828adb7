// Owns what the decorators do to packets: faults at the rates asked for, and captures that others
// can read.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "srd/io/fault_io.hpp"
#include "srd/io/memory_io.hpp"
#include "srd/io/pcap_io.hpp"
#include "srd/wire/srd_codec.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/srd/io/conformance.hpp"

namespace weft::srd {
namespace {

const Address kFirst = test::ipv4(127, 1, 0, 1);
const Address kSecond = test::ipv4(127, 1, 0, 2);

TxPacket packet(std::uint32_t number) {
  TxPacket packet;
  packet.to = kSecond;
  packet.header_size = 64;
  std::memset(packet.header.data(), 0, 64);
  std::memcpy(packet.header.data() + 28, &number, sizeof number);
  // Twice, so that damage to either shows.
  std::memcpy(packet.header.data() + 40, &number, sizeof number);
  return packet;
}

struct Outcome {
  std::map<std::uint32_t, int> arrived;
  int damaged = 0;
  int overtaken = 0;
};

// Sends so many packets through `faults` and looks at what comes out.
Outcome send_through(const FaultIo::Config& faults, std::uint32_t count,
                     std::shared_ptr<PacketCapture> capture = nullptr) {
  auto [first, second] = MemoryIo::create_pair({.own = kFirst}, {.own = kSecond});
  FaultIo io(faults, std::move(first), std::move(capture));
  Outcome outcome;
  std::uint32_t highest = 0;
  const auto drain = [&] {
    for (const RxPacket& received : second->receive()) {
      std::uint32_t number = 0;
      std::memcpy(&number, received.bytes.data() + 28, sizeof number);
      const TxPacket original = packet(number);
      if (number == 0 || number > count ||
          std::memcmp(received.bytes.data(), original.header.data(), 64) != 0) {
        ++outcome.damaged;
        continue;
      }
      ++outcome.arrived[number];
      outcome.overtaken += number < highest ? 1 : 0;
      highest = std::max(highest, number);
    }
    second->release();
  };
  for (std::uint32_t i = 1; i <= count; ++i) {
    const TxPacket one = packet(i);
    EXPECT_EQ(io.transmit({&one, 1}), 1U);
    drain();
  }
  // What faults hold back comes out by and by, at later looks.
  for (int i = 0; i < 1000; ++i) {
    [[maybe_unused]] const auto room = io.transmit_room();
    drain();
  }
  return outcome;
}

constexpr std::uint32_t kCount = 20'000;

TEST(FaultIo, LosesAndDoublesAtTheRatesAskedFor) {
  const Outcome outcome = send_through({.seed = 3, .loss = 0.1, .duplication = 0.2}, kCount);
  // One hundredth of the packets is 200: with 20,000 draws more than three standard deviations.
  EXPECT_NEAR(static_cast<double>(outcome.arrived.size()), 0.9 * kCount, 0.01 * kCount);
  int twice = 0;
  for (const auto& [number, times] : outcome.arrived) {
    twice += times == 2 ? 1 : 0;
    EXPECT_LE(times, 2);
  }
  EXPECT_NEAR(twice, 0.9 * 0.2 * kCount, 0.01 * kCount);
  EXPECT_EQ(outcome.damaged, 0);
}

// A damaged packet arrives, once, and in place of the good one.
TEST(FaultIo, DamagesOneBitAtTheRateAskedFor) {
  const Outcome outcome = send_through({.seed = 4, .corruption = 0.05}, kCount);
  EXPECT_NEAR(outcome.damaged, 0.05 * kCount, 0.01 * kCount);
  EXPECT_EQ(outcome.arrived.size() + static_cast<std::size_t>(outcome.damaged), kCount);
}

TEST(FaultIo, LetsOthersOvertakeAndLosesNone) {
  const Outcome outcome = send_through({.seed = 5, .reordering = 0.1}, kCount);
  EXPECT_EQ(outcome.arrived.size(), kCount);
  const Outcome none = send_through({.seed = 5}, 1000);
  EXPECT_EQ(none.overtaken, 0);
}

// A run that failed is repeated by its seed.
TEST(FaultIo, TheSameSeedDoesTheSame) {
  const FaultIo::Config config{.seed = 6, .loss = 0.3};
  EXPECT_EQ(send_through(config, 1000).arrived, send_through(config, 1000).arrived);
}

// A capture file is made of blocks that say their length twice.
struct Block {
  std::uint32_t type = 0;
  std::string body;
};

std::vector<Block> blocks_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<Block> blocks;
  std::size_t at = 0;
  while (at + 12 <= bytes.size()) {
    std::uint32_t type = 0;
    std::uint32_t length = 0;
    std::uint32_t again = 0;
    std::memcpy(&type, &bytes[at], 4);
    std::memcpy(&length, &bytes[at + 4], 4);
    if (length < 12 || length % 4 != 0 || at + length > bytes.size()) {
      break;
    }
    std::memcpy(&again, &bytes[at + length - 4], 4);
    EXPECT_EQ(again, length);
    blocks.push_back({type, bytes.substr(at + 8, length - 12)});
    at += length;
  }
  EXPECT_EQ(at, bytes.size()) << "rubbish at the end of the file";
  return blocks;
}

TEST(Capture, HoldsEveryPacketAndSaysWhyOnesWereDropped) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/capture";
  {
    auto capture = PacketCapture::create(path, kFirst, CaptureFormat::of<wire::SrdCodec>());
    ASSERT_TRUE(capture) << capture.error().message;
    auto [first, second] = MemoryIo::create_pair({.own = kFirst}, {.own = kSecond});
    FaultIo io({.seed = 1, .loss = 0.5}, std::make_unique<PcapIo>(std::move(first), *capture),
               *capture);
    for (std::uint32_t i = 1; i <= 100; ++i) {
      const TxPacket one = packet(i);
      ASSERT_EQ(io.transmit({&one, 1}), 1U);
    }
    EXPECT_EQ((*capture)->packets(), 100U);
  }
  std::size_t packets = 0;
  std::size_t dropped = 0;
  for (const Block& block : blocks_of(path)) {
    // An enhanced packet block of pcapng.
    if (block.type == 6) {
      ++packets;
      dropped += block.body.find("dropped: loss") != std::string::npos ? 1U : 0U;
      std::uint32_t length = 0;
      std::memcpy(&length, &block.body[12], 4);
      // With the headers of Ethernet, IPv4 and UDP (14 + 20 + 8), so that other programs can read
      // it.
      EXPECT_EQ(length, 64U + 42U);
    }
  }
  EXPECT_EQ(packets, 100U);
  EXPECT_GT(dropped, 30U);
  EXPECT_LT(dropped, 70U);
}

}  // namespace
}  // namespace weft::srd
