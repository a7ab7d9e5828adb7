// Owns what a capture promises when its disk is slow: no traffic waits, and what is lost is
// counted.
#include "emu/daemon/capture_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A file of which each write waits until it is let go. The thread may outlive a test.
struct Disk {
  std::promise<void> go;
  std::shared_future<void> gone{go.get_future()};
  std::atomic<std::uint64_t> writes{0};
  std::vector<std::string> written;
  std::vector<std::uint64_t> times;

  static CaptureQueue::Sink sink(const std::shared_ptr<Disk>& disk) {
    return {.write =
                [disk](const CapturedFrame& frame) {
                  ++disk->writes;
                  disk->gone.wait();
                  disk->times.push_back(frame.time);
                  disk->written.push_back(
                      std::to_string(frame.interface) + ":" + std::string(frame.comment) + ":" +
                      std::string(reinterpret_cast<const char*>(frame.bytes.data()),
                                  frame.bytes.size()));
                },
            .flush = [] {}};
  }
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(CaptureQueue, EverythingIsWrittenInOrderAcrossManyTurnsOfTheRing) {
  const auto disk = std::make_shared<Disk>();
  disk->go.set_value();
  auto queue = CaptureQueue::start(Disk::sink(disk), 1 << 12);
  ASSERT_TRUE(queue);
  Rng rng(7);
  std::vector<std::string> expected;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const std::string text(rng.below(400), static_cast<char>('a' + i % 26));
    const std::string comment(rng.below(3) == 0 ? rng.below(40) : 0, 'c');
    const auto interface = static_cast<std::uint32_t>(i % 5);
    for (std::uint64_t dropped = (*queue)->dropped() + 1; dropped != (*queue)->dropped();) {
      dropped = (*queue)->dropped();
      (*queue)->push({interface, i, bytes_of(text), comment});  // again, if there was no room
    }
    expected.push_back(std::to_string(interface) + ":" + comment + ":" + text);
  }
  ASSERT_TRUE((*queue)->finish(seconds{60}));
  EXPECT_EQ(disk->written, expected);
  for (std::uint64_t i = 0; i < disk->times.size(); ++i) {
    ASSERT_EQ(disk->times[i], i);
  }
}

TEST(CaptureQueue, ADiskThatDoesNotAnswerHoldsUpNobodyAndWhatIsLostIsCounted) {
  constexpr std::uint64_t kFrames = 1000;
  constexpr std::size_t kRing = 1 << 14;
  const std::string frame(500, 'x');
  const auto disk = std::make_shared<Disk>();
  auto queue = CaptureQueue::start(Disk::sink(disk), kRing);
  ASSERT_TRUE(queue);
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    (*queue)->push({0, i, bytes_of(frame), "a comment"});
  }
  const std::uint64_t kept = kFrames - (*queue)->dropped();
  // A record is a frame of 500 bytes with its comment and a header: between 500 and 600.
  EXPECT_GE(kept, kRing / 600);
  EXPECT_LE(kept, kRing / 500 + 1);  // and one that is being written
  EXPECT_FALSE((*queue)->finish(milliseconds{1}));
  disk->go.set_value();
  ASSERT_TRUE((*queue)->finish(seconds{60}));
  EXPECT_EQ(disk->written.size(), kept);
}

TEST(CaptureQueue, EndsWithoutItsDisk) {
  const auto disk = std::make_shared<Disk>();
  const std::string frame(10, 'x');
  {
    auto queue = CaptureQueue::start(Disk::sink(disk), 1 << 12);
    ASSERT_TRUE(queue);
    (*queue)->push({0, 1, bytes_of(frame), ""});
    while (disk->writes == 0) {
      std::this_thread::yield();
    }
  }
  disk->go.set_value();
}

}  // namespace
}  // namespace weft::daemon
