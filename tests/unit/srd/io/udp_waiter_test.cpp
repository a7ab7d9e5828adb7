// Owns whom a UDP packet wakes: who sleeps on an armed carrier, and nobody else.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <memory>

#include "srd/io/posix.hpp"
#include "tests/unit/srd/io/conformance.hpp"
#include "tests/unit/srd/io/srd_carriers.hpp"

namespace weft::srd {
namespace {

constexpr int kPatience = 10'000;  // ms

class UdpWaiter : public testing::Test {
 protected:
  void SetUp() override {
    auto sender = test::SrdSockets::create({.own = own_address(1), .paths = 1});
    auto reader = test::SrdSockets::create({.own = reader_address_, .paths = 1});
    ASSERT_TRUE(sender && reader);
    sender_ = std::move(*sender);
    reader_ = std::move(*reader);
  }
  void send_one() {
    TxPacket packet;
    packet.to = reader_address_;
    packet.header_size = 64;
    packet.header.fill({});
    ASSERT_EQ(sender_->transmit({&packet, 1}), 1U);
  }
  [[nodiscard]] bool wakes(int milliseconds) const {
    pollfd fd{.fd = reader_->wait_fd(), .events = POLLIN, .revents = 0};
    return ::poll(&fd, 1, milliseconds) == 1;
  }

  // Each test is a process, and several run at the same time.
  [[nodiscard]] static Address own_address(std::uint8_t last) {
    const auto pid = static_cast<std::uint32_t>(::getpid());
    return test::ipv4(127, static_cast<std::uint8_t>(2 + (pid >> 8) % 60),
                      static_cast<std::uint8_t>(pid), last);
  }

  Address reader_address_ = own_address(2);
  std::unique_ptr<test::SrdSockets> sender_;
  std::unique_ptr<test::SrdSockets> reader_;
};

// While one thread polls, another one sleeps until it is needed. If packets woke that one, both
// would run for each packet, and with more threads than cores stand in each other's way.
TEST_F(UdpWaiter, NobodyIsWokenWhileItIsNotArmed) {
  for (int round = 0; round < 3; ++round) {
    send_one();
    EXPECT_FALSE(wakes(20)) << "round " << round;
    while (reader_->receive().empty()) {
    }
    reader_->release();
    ASSERT_TRUE(reader_->arm());
    EXPECT_FALSE(wakes(0));
    send_one();
    EXPECT_TRUE(wakes(kPatience));
    reader_->disarm();
    EXPECT_FALSE(wakes(20));
    while (reader_->receive().empty()) {
    }
    reader_->release();
  }
}

// The next sleeper would be woken for what this arm() has told its caller already.
TEST_F(UdpWaiter, IsNotArmedByAnArmThatRefuses) {
  ASSERT_TRUE(reader_->arm());
  send_one();
  ASSERT_TRUE(wakes(kPatience));
  EXPECT_FALSE(reader_->arm());
  EXPECT_FALSE(wakes(20));
}

}  // namespace
}  // namespace weft::srd
