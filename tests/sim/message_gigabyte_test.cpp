// Owns the longest message: a gigabyte in two megabytes of memory. All its repetitions of the
// pattern land on the same pages, so that what is compared at the end is the last write to each of
// them.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/message_lab.hpp"

namespace weft::testing {
namespace {

// A long range of addresses behind which the same few pages lie again and again. The period is a
// prime number of pages, so that a byte that is misplaced by a round number shows.
class Wallpaper {
 public:
  explicit Wallpaper(std::size_t length) : length_(length) {
    const int file = memfd_create("wallpaper", 0);
    EXPECT_GE(file, 0);
    EXPECT_EQ(ftruncate(file, kPeriod), 0);
    void* const range =
        mmap(nullptr, rounded(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(range, MAP_FAILED);
    data_ = static_cast<std::byte*>(range);
    for (std::size_t at = 0; at < rounded(); at += kPeriod) {
      EXPECT_NE(mmap(data_ + at, kPeriod, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0),
                MAP_FAILED);
    }
    close(file);
  }
  ~Wallpaper() { munmap(data_, rounded()); }
  Wallpaper(const Wallpaper&) = delete;

  static constexpr std::size_t kPeriod = 257 * 4096;
  [[nodiscard]] std::span<std::byte> all() { return {data_, length_}; }
  [[nodiscard]] std::span<std::byte> period() { return {data_, kPeriod}; }

 private:
  [[nodiscard]] std::size_t rounded() const { return (length_ + kPeriod - 1) / kPeriod * kPeriod; }
  std::size_t length_;
  std::byte* data_ = nullptr;
};

TEST(Gigabyte, ArrivesOverANetworkThatLosesAndOvertakes) {
  MessageLabConfig config = message_lab_config();
  config.engine.mtu_payload = 8192;
  config.engine.checksum = false;
  config.link.loss = 0.001;
  config.link.jitter = 5us;
  config.link.path_skew = 1us;
  MessageLab lab(2, config);
  Wallpaper out(srd::kMaxTransfer);
  Wallpaper in(srd::kMaxTransfer);
  fill(out.period(), 1);
  ASSERT_EQ(lab[1].messenger().post_receive({.data = in.all(), .tag = 1}),
            srd::PostResult::accepted);
  ASSERT_EQ(
      lab[0].messenger().post_send({.to = lab[0].address(lab[1]), .data = out.all(), .tag = 1}),
      srd::PostResult::accepted);
  ASSERT_TRUE(lab.run_until(
      [&] { return !lab[1].completions().empty() && !lab[0].completions().empty(); }, 60s));
  EXPECT_EQ(lab[1].completions()[0].status, srd::Status::ok);
  EXPECT_EQ(lab[1].completions()[0].length, srd::kMaxTransfer);
  EXPECT_EQ(lab[0].completions()[0].status, srd::Status::ok);
  EXPECT_EQ(first_difference(in.period(), 1), Wallpaper::kPeriod);
  EXPECT_EQ(lab[1].engine().counters().rdma_read_bytes, srd::kMaxTransfer);
}

}  // namespace
}  // namespace weft::testing
