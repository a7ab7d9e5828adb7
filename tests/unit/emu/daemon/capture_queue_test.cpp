// Owns the tests of the queue between the forwarding thread and a capture's disk: nothing is lost
// or out of order while there is room, and a disk that is slow or stands still holds up no traffic.
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

// A file of which each write waits until `go` is set. The queue's thread may outlive the queue, so
// it shares this object; what it has written may be read after a finish() that is true.
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

// Records of random sizes in a ring of 4 KiB: 3000 of them go round it more than a hundred times,
// and are parted at its end, in their headers as well. A push that finds no room is made again.
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
      (*queue)->push({interface, i, bytes_of(text), comment});
    }
    expected.push_back(std::to_string(interface) + ":" + comment + ":" + text);
  }
  ASSERT_TRUE((*queue)->finish(seconds{60}));
  EXPECT_EQ(disk->written, expected);
  for (std::uint64_t i = 0; i < disk->times.size(); ++i) {
    ASSERT_EQ(disk->times[i], i);
  }
}

// The disk does not take the first frame before the end. A push() that waited for room would not
// return at all; finish() says that it has not come to an end, and later that it has.
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
  EXPECT_LE(kept, kRing / 500 + 1);  // the ring's, and one that is being written
  EXPECT_FALSE((*queue)->finish(milliseconds{1}));
  disk->go.set_value();
  ASSERT_TRUE((*queue)->finish(seconds{60}));
  EXPECT_EQ(disk->written.size(), kept);
}

// The writing thread is inside of a write that does not return. The destructor gives up on it after
// a second; one that joined the thread would hang here, by which the test fails.
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
