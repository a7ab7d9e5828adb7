// Owns what the process that has opened a tap device can do to the one that was given it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <array>
#include <stdexcept>

#include "srd/io/tap_io.hpp"
#include "tests/unit/srd/io/bridged_taps.hpp"

namespace weft::srd {
namespace {

class DonatedTap : public testing::Test {
 protected:
  void SetUp() override {
    try {
      auto taps = test::bridged_taps();
      donor_ = UniqueFd(::fcntl(taps.first.get(), F_DUPFD_CLOEXEC, 0));
      auto io = TapIo::adopt({.name = {}, .max_frame = 1518}, std::move(taps.first));
      ASSERT_TRUE(io) << io.error().message;
      io_ = std::move(*io);
    } catch (const std::runtime_error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  UniqueFd donor_;
  std::unique_ptr<TapIo> io_;
};

// Flags belong to the open file description, which the donor has as well.
TEST_F(DonatedTap, NeverBlocksWhateverItsFlags) {
  ASSERT_EQ(::fcntl(donor_.get(), F_SETFL, 0), 0);
  // The kernel may have something to say at any time; a call that blocks never ends this.
  const auto drain = [this] {
    while (!io_->receive().empty()) {
    }
  };
  drain();
  const std::array<std::byte, 64> frame{};
  TxFrame sent;
  sent.pieces[0] = frame;
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(io_->transmit({&sent, 1}), 1U);
  }
  drain();
}

// Flags are the donor's, too: if they were set here, its own calls would change their behaviour.
TEST_F(DonatedTap, LeavesTheDonorsFlagsAlone) {
  EXPECT_EQ(::fcntl(donor_.get(), F_GETFL) & O_NONBLOCK, O_NONBLOCK);  // as it was opened
  ASSERT_EQ(::fcntl(donor_.get(), F_SETFL, 0), 0);
  auto again = TapIo::adopt({.name = {}, .max_frame = 1518},
                            UniqueFd(::fcntl(donor_.get(), F_DUPFD_CLOEXEC, 0)));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(::fcntl(donor_.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(Tap, OnlyTapDevicesAreTaken) {
  EXPECT_FALSE(TapIo::adopt({.name = {}, .max_frame = 1518}, UniqueFd(::eventfd(0, EFD_CLOEXEC))));
  EXPECT_FALSE(TapIo::adopt({.name = {}, .max_frame = 1518},
                            UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC))));
}

}  // namespace
}  // namespace weft::srd
