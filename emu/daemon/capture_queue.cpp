// Owns the ring between the two threads, and the thread that writes.
#include "emu/daemon/capture_queue.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "srd/base/check.hpp"

namespace weft::daemon {
namespace {

// The writing thread polls: waking it for each frame would be a system call of the forwarding
// thread.
constexpr auto kLookAgain = std::chrono::milliseconds{2};
// How long the end of a capture, or of weftd, waits for the disk.
constexpr Duration kPatience = std::chrono::seconds{1};

struct Header {
  std::uint64_t time;
  std::uint32_t interface;
  std::uint32_t bytes;
  std::uint32_t comment;
};

}  // namespace

// What both threads use. Records lie one behind the other and wrap around byte by byte; positions
// are byte counts that never wrap. `head` is written by the pushing thread, `tail` by the writing
// one; the mutex is only for the end.
struct CaptureQueue::Shared {
  Shared(Sink to, std::size_t room) : sink(std::move(to)), ring(room) {}

  std::uint64_t put(std::uint64_t at, const void* from, std::size_t size) {
    const std::size_t begin = at & (ring.size() - 1);
    const std::size_t first = std::min(size, ring.size() - begin);
    std::memcpy(ring.data() + begin, from, first);
    std::memcpy(ring.data(), static_cast<const std::byte*>(from) + first, size - first);
    return at + size;
  }
  std::uint64_t get(std::uint64_t at, void* to, std::size_t size) const {
    const std::size_t begin = at & (ring.size() - 1);
    const std::size_t first = std::min(size, ring.size() - begin);
    std::memcpy(to, ring.data() + begin, first);
    std::memcpy(static_cast<std::byte*>(to) + first, ring.data(), size - first);
    return at + size;
  }

  // The room of a record is given back before the sink has written it: the bytes are copied out
  // first, so that the forwarding thread never waits for the disk.
  void write_all() {
    std::uint64_t at = tail.load(std::memory_order_relaxed);
    while (at != head.load(std::memory_order_acquire)) {
      Header header;
      at = get(at, &header, sizeof header);
      bytes.resize(header.bytes);
      comment.resize(header.comment);
      at = get(at, bytes.data(), bytes.size());
      at = get(at, comment.data(), comment.size());
      tail.store(at, std::memory_order_release);
      sink.write({header.interface, header.time, bytes, comment});
    }
    sink.flush();
  }

  // After the end was asked for, everything that is in the ring is written once more.
  void serve() {
    for (bool last = false; !last;) {
      {
        std::unique_lock lock(mutex);
        changed.wait_for(lock, kLookAgain, [this] { return ending; });
        last = ending;
      }
      write_all();
    }
    const std::lock_guard lock(mutex);
    written = true;
    changed.notify_all();
  }

  Sink sink;
  std::vector<std::byte> ring;
  alignas(64) std::atomic<std::uint64_t> head{0};  // the writing end of the ring
  alignas(64) std::atomic<std::uint64_t> tail{0};
  std::vector<std::byte> bytes;  // of the record being written
  std::string comment;
  std::mutex mutex;
  std::condition_variable changed;
  bool ending = false;
  bool written = false;  // everything
};

CaptureQueue::CaptureQueue(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

Result<std::unique_ptr<CaptureQueue>> CaptureQueue::start(Sink sink, std::size_t bytes) {
  WEFT_CHECK((bytes & (bytes - 1)) == 0);
  auto shared = std::make_shared<Shared>(std::move(sink), bytes);
  try {
    std::thread([shared] { shared->serve(); }).detach();
  } catch (const std::system_error& error) {
    return fail(ErrorCode::out_of_resources, std::string("capture: a thread: ") + error.what());
  }
  return std::unique_ptr<CaptureQueue>(new CaptureQueue(std::move(shared)));
}

CaptureQueue::~CaptureQueue() {
  if (!finished_) {
    finish(kPatience);
  }
}

void CaptureQueue::push(const CapturedFrame& frame) {
  const Header header{.time = frame.time,
                      .interface = frame.interface,
                      .bytes = static_cast<std::uint32_t>(frame.bytes.size()),
                      .comment = static_cast<std::uint32_t>(frame.comment.size())};
  const std::size_t size = sizeof header + frame.bytes.size() + frame.comment.size();
  if (head_ + size - shared_->tail.load(std::memory_order_acquire) > shared_->ring.size()) {
    ++dropped_;
    return;
  }
  head_ = shared_->put(head_, &header, sizeof header);
  head_ = shared_->put(head_, frame.bytes.data(), frame.bytes.size());
  head_ = shared_->put(head_, frame.comment.data(), frame.comment.size());
  shared_->head.store(head_, std::memory_order_release);
}

bool CaptureQueue::finish(Duration patience) {
  finished_ = true;
  std::unique_lock lock(shared_->mutex);
  shared_->ending = true;
  shared_->changed.notify_all();
  return shared_->changed.wait_for(lock, patience, [this] { return shared_->written; });
}

}  // namespace weft::daemon
