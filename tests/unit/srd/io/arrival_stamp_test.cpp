// Owns when a UDP packet counts as arrived: when the kernel took it, not when it was read.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <memory>
#include <thread>

#include "srd/io/posix.hpp"
#include "tests/unit/srd/io/conformance.hpp"
#include "tests/unit/srd/io/srd_carriers.hpp"

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

constexpr Duration kWait = 20ms;
// Between two clocks that are read one after the other, unless the process loses its core there.
constexpr Duration kApart = 1ms;

class ArrivalStamp : public testing::Test {
 protected:
  void SetUp() override {
    auto sender = test::SrdSockets::create({.own = test::ipv4(127, 1, 7, 1), .paths = 1});
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
  void await_readable() {
    if (!reader_->arm()) {
      return;  // it is there
    }
    pollfd readable{.fd = reader_->wait_fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&readable, 1, 10'000), 1);
    reader_->disarm();
  }

  Address reader_address_ = test::ipv4(127, 1, 7, 2);
  std::unique_ptr<test::SrdSockets> sender_;
  std::unique_ptr<test::SrdSockets> reader_;
};

// One undisturbed try proves it: a stamp of the reading is 20 ms too late each time. Some tries
// fail. The kernel begins to stamp some time after it was asked to, and what came before gets the
// time of its reading; and a process that loses its core between two clocks misjudges how they
// differ.
TEST_F(ArrivalStamp, IsTheKernelsHoweverLongThePacketWaits) {
  bool as_it_arrived = false;
  for (int tries = 0; tries < 50 && !as_it_arrived; ++tries) {
    const TimePoint sent = clock_now();
    send_one();
    await_readable();
    const TimePoint readable = clock_now();
    std::this_thread::sleep_for(kWait);
    const auto packets = reader_->receive();
    ASSERT_EQ(packets.size(), 1U);
    const TimePoint arrived = packets[0].arrived;
    reader_->release();
    ASSERT_NE(arrived, kNever);
    as_it_arrived = sent - kApart <= arrived && arrived <= readable + kApart;
  }
  EXPECT_TRUE(as_it_arrived);
}

}  // namespace
}  // namespace weft::srd
