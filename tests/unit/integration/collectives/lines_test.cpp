// Owns the proof that lines carry every byte, and that none is taken before it is here.
#include "integration/collectives/lines.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft::collectives {
namespace {

constexpr Protocol kBoth[] = {Protocol::ll, Protocol::ll128};

std::vector<std::byte> random_bytes(std::size_t count, Rng& rng) {
  std::vector<std::byte> bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(rng.next()); });
  return bytes;
}

TEST(Lines, SizesAreNccls) {
  EXPECT_EQ(data_bytes(Protocol::ll, 65536), 32768U);
  EXPECT_EQ(data_bytes(Protocol::ll128, 614400), 576000U);
  EXPECT_EQ(data_bytes(Protocol::simple, 524288), 524288U);
  EXPECT_EQ(line_bytes(Protocol::ll, 0), 0U);
  EXPECT_EQ(line_bytes(Protocol::ll, 1), 16U);
  EXPECT_EQ(line_bytes(Protocol::ll, 8), 16U);
  EXPECT_EQ(line_bytes(Protocol::ll, 9), 32U);
  EXPECT_EQ(line_bytes(Protocol::ll128, 1), 2048U);
  EXPECT_EQ(line_bytes(Protocol::ll128, 1921), 4096U);
}

TEST(Lines, CarryEveryByte) {
  Rng rng(3);
  for (const Protocol protocol : kBoth) {
    for (std::size_t bytes = 0; bytes < 4000; bytes += 1 + rng.below(40)) {
      const auto data = random_bytes(bytes, rng);
      std::vector<std::byte> slot(line_bytes(protocol, bytes) + 8);
      write_lines(protocol, data.data(), bytes, slot.data(), 77);
      EXPECT_TRUE(std::all_of(slot.end() - 8, slot.end(), [](auto b) { return b == std::byte{}; }));
      std::vector<std::byte> read(bytes);
      ASSERT_EQ(read_lines(protocol, slot.data(), 77, read.data(), bytes, 0),
                lines_of(protocol, bytes));
      EXPECT_EQ(read, data);
      EXPECT_EQ(read_lines(protocol, slot.data(), 78, read.data(), bytes, 0), 0U)
          << "another use of the slot";
    }
  }
}

// A reader that goes on before that would give the slot away while a former message still arrives
// in it.
TEST(Lines, MessageIsNotReadBeforeWhatFillsItUpIsHere) {
  for (const Protocol protocol : kBoth) {
    const std::vector<std::byte> data(1);
    const std::size_t wire = line_bytes(protocol, data.size());
    std::vector<std::byte> slot(wire);
    write_lines(protocol, data.data(), data.size(), slot.data(), 9);
    std::byte read{};
    slot[wire - 1] = slot[wire - 8] = slot[wire - 4] = std::byte{0x55};
    EXPECT_EQ(read_lines(protocol, slot.data(), 9, &read, 1, 0), lines_of(protocol, 1) - 1);
  }
}

// Whatever order its lines arrive in, what is taken is right.
TEST(Lines, AreTakenOnlyWhenTheyAreHere) {
  Rng rng(4);
  for (const Protocol protocol : kBoth) {
    const std::size_t line = protocol == Protocol::ll ? 8 : 128;
    const auto data = random_bytes(5000, rng);
    const std::size_t wire = line_bytes(protocol, data.size());
    std::vector<std::byte> sent(wire);
    write_lines(protocol, data.data(), data.size(), sent.data(), 9);
    std::vector<std::byte> slot = random_bytes(wire, rng);
    std::vector<std::size_t> order(wire / line);
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
      std::swap(order[i], order[rng.below(static_cast<std::uint32_t>(i) + 1)]);
    }
    std::vector<std::byte> read(data.size());
    std::size_t done = 0;
    for (const std::size_t index : order) {
      std::copy_n(sent.begin() + static_cast<std::ptrdiff_t>(index * line), line,
                  slot.begin() + static_cast<std::ptrdiff_t>(index * line));
      done = read_lines(protocol, slot.data(), 9, read.data(), data.size(), done);
      const std::size_t bytes = std::min(done * (protocol == Protocol::ll ? 4 : 120), data.size());
      ASSERT_TRUE(std::equal(read.begin(), read.begin() + static_cast<std::ptrdiff_t>(bytes),
                             data.begin()));
    }
    EXPECT_EQ(done, lines_of(protocol, data.size()));
  }
}

}  // namespace
}  // namespace weft::collectives
