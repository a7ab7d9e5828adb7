// Owns what a key opens, and for which accesses.
#include "emu/roce/engine/keys.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>

namespace weft::roce {
namespace {

constexpr std::uint32_t kDomain = 3;
constexpr std::uint32_t kQpn = 17;
constexpr std::uint64_t kStart = 0x1000;

// One region of 256 bytes, and windows on it. A bound window has the key that follows its own:
// next().
class Keys : public ::testing::Test {
 protected:
  Keys() : keys(1) { region = add(kLocalWrite | kRemoteRead | kRemoteWrite | kWindowBind); }
  std::uint32_t add(std::uint32_t access) {
    return keys.register_region({memory.data(), kStart, memory.size(), access, kDomain});
  }
  WorkRequest bind(std::uint32_t window, std::uint64_t address, std::uint64_t length,
                   std::uint32_t access = kRemoteWrite) const {
    WorkRequest request;
    request.window = window;
    request.new_rkey = window + 1;
    request.bind_lkey = region;
    request.bind_access = access;
    request.bind_address = address;
    request.bind_length = length;
    return request;
  }
  static std::uint32_t next(std::uint32_t rkey) { return (rkey & ~0xFFU) | ((rkey + 1) & 0xFF); }
  std::byte* remote(std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                    std::uint32_t access = kRemoteWrite, std::uint32_t qpn = kQpn) {
    return keys.remote(rkey, address, length, access, kDomain, qpn);
  }
  std::array<std::byte, 256> memory{};
  KeyTable keys;
  std::uint32_t region = 0;
};

TEST_F(Keys, OpensARegionAndNothingAround) {
  EXPECT_EQ(keys.local({kStart, 256, region}, kLocalWrite, kDomain), memory.data());
  EXPECT_EQ(keys.local({kStart + 255, 1, region}, 0, kDomain), memory.data() + 255);
  EXPECT_EQ(keys.local({kStart + 255, 2, region}, 0, kDomain), nullptr);
  EXPECT_EQ(keys.local({kStart - 1, 1, region}, 0, kDomain), nullptr);
  EXPECT_EQ(keys.local({kStart, 1, region}, 0, kDomain + 1), nullptr);
  EXPECT_EQ(keys.local({kStart, 1, region ^ 1}, 0, kDomain), nullptr);
  EXPECT_EQ(keys.local({kStart, 1, region}, kRemoteAtomic, kDomain), nullptr);
  EXPECT_EQ(remote(region, kStart + 8, 248), memory.data() + 8);
  EXPECT_EQ(remote(region, kStart + 8, 249), nullptr);
  EXPECT_EQ(remote(region, kStart + 8, ~std::uint64_t{0}), nullptr);
  EXPECT_EQ(remote(region, kStart, 8, kRemoteAtomic), nullptr);
}

TEST_F(Keys, ForgetsAKey) {
  EXPECT_EQ(keys.deregister(region), 0);
  EXPECT_EQ(keys.deregister(region), EINVAL);
  EXPECT_EQ(remote(region, kStart, 1), nullptr);
  EXPECT_NE(add(kRemoteRead), region);  // the same index
}

TEST_F(Keys, BindsAWindowOfTypeTwoToOneQueuePair) {
  const std::uint32_t window = keys.allocate_window(2, kDomain);
  EXPECT_EQ(remote(window, kStart, 1), nullptr);
  ASSERT_TRUE(keys.bind(bind(window, kStart + 16, 32), kDomain, kQpn));
  const std::uint32_t rkey = next(window);
  EXPECT_EQ(remote(window, kStart + 16, 1), nullptr);  // its former key
  EXPECT_EQ(remote(rkey, kStart + 16, 32), memory.data() + 16);
  EXPECT_EQ(remote(rkey, kStart + 16, 33), nullptr);
  EXPECT_EQ(remote(rkey, kStart + 15, 1), nullptr);
  EXPECT_EQ(remote(rkey, kStart + 16, 1, kRemoteRead), nullptr);
  EXPECT_EQ(remote(rkey, kStart + 16, 1, kRemoteWrite, kQpn + 1), nullptr);
  EXPECT_FALSE(keys.bind(bind(rkey, kStart, 8), kDomain, kQpn));  // it is bound
  EXPECT_EQ(keys.deregister(region), EBUSY);
  EXPECT_FALSE(keys.invalidate(rkey, kQpn + 1));
  EXPECT_TRUE(keys.invalidate(rkey, kQpn));
  EXPECT_FALSE(keys.invalidate(rkey, kQpn));
  EXPECT_EQ(remote(rkey, kStart + 16, 1), nullptr);
  EXPECT_TRUE(keys.bind(bind(rkey, kStart, 8), kDomain, kQpn));
  EXPECT_EQ(keys.free_window(next(rkey)), 0);
  EXPECT_EQ(keys.deregister(region), 0);
}

TEST_F(Keys, BindsAWindowOfTypeOneAgainAndAgain) {
  std::uint32_t window = keys.allocate_window(1, kDomain);
  // More often than the byte of a key's variant has values: it comes round.
  for (int time = 0; time < 300; ++time) {
    ASSERT_TRUE(keys.bind(bind(window, kStart, 16), kDomain, kQpn));
    window = next(window);
    EXPECT_NE(remote(window, kStart, 16, kRemoteWrite, kQpn + 1), nullptr);
  }
  EXPECT_FALSE(keys.invalidate(window, kQpn));
  ASSERT_TRUE(keys.bind(bind(window, 0, 0), kDomain, kQpn));  // unbinds
  EXPECT_EQ(remote(next(window), kStart, 1), nullptr);
  EXPECT_EQ(keys.deregister(region), 0);
}

TEST_F(Keys, KnowsZeroBasedWindows) {
  const std::uint32_t window = keys.allocate_window(2, kDomain);
  ASSERT_TRUE(keys.bind(bind(window, kStart + 16, 32, kRemoteWrite | kZeroBased), kDomain, kQpn));
  EXPECT_EQ(remote(next(window), 0, 32), memory.data() + 16);
  EXPECT_EQ(remote(next(window), 1, 32), nullptr);
  EXPECT_EQ(remote(next(window), kStart + 16, 1), nullptr);
}

TEST_F(Keys, RefusesABinding) {
  const std::uint32_t window = keys.allocate_window(2, kDomain);
  EXPECT_FALSE(keys.bind(bind(window, kStart, 257), kDomain, kQpn));
  EXPECT_FALSE(keys.bind(bind(window, kStart, 0), kDomain, kQpn));
  EXPECT_FALSE(keys.bind(bind(window, kStart, 8), kDomain + 1, kQpn));
  EXPECT_FALSE(keys.bind(bind(window ^ 1, kStart, 8), kDomain, kQpn));
  const std::uint32_t one = keys.allocate_window(1, kDomain);
  EXPECT_FALSE(keys.bind(bind(one, kStart, 8, kRemoteWrite | kZeroBased), kDomain, kQpn));
  region = add(kLocalWrite);  // may not be bound
  EXPECT_FALSE(keys.bind(bind(window, kStart, 8), kDomain, kQpn));
  region = add(kWindowBind);  // may not be written to
  EXPECT_FALSE(keys.bind(bind(window, kStart, 8), kDomain, kQpn));
  EXPECT_TRUE(keys.bind(bind(window, kStart, 8, kRemoteRead), kDomain, kQpn));
}

}  // namespace
}  // namespace weft::roce
