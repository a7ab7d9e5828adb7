// Owns the queue of the side threads.
#include "emu/daemon/side_threads.hpp"

#include <boost/asio/post.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace weft::daemon {

// Shared by all threads, and outlives the SideThreads object while one of them is stuck.
struct SideThreads::Queue {
  struct Entry {
    std::function<void()> work;
    std::function<void()> then;
  };

  explicit Queue(boost::asio::io_context& control) : io(&control) {}

  void serve() {
    while (std::optional<Entry> entry = next()) {
      entry->work();
      entry->work = {};  // which may close what it held
      finish(std::move(entry->then));
    }
  }

  std::mutex mutex;
  std::condition_variable wake;
  std::deque<Entry> waiting;
  std::size_t threads = 0;
  std::size_t busy = 0;         // of them
  boost::asio::io_context* io;  // null: the SideThreads object is gone

 private:
  // Nothing: the calling thread is to end. One idle thread is kept, so that the next work need not
  // wait for a new one.
  std::optional<Entry> next() {
    std::unique_lock lock(mutex);
    if (threads - busy == 1) {
      wake.wait(lock, [this] { return io == nullptr || !waiting.empty(); });
    }
    if (io == nullptr || waiting.empty()) {
      --threads;
      return std::nullopt;
    }
    Entry entry = std::move(waiting.front());
    waiting.pop_front();
    ++busy;
    return entry;
  }
  // If `then` is not posted, it is destroyed by the caller without the mutex: that may be a close,
  // and block.
  void finish(std::function<void()> then) {
    const std::lock_guard lock(mutex);
    --busy;
    if (io != nullptr && then) {
      boost::asio::post(*io, std::move(then));
    }
  }
};

SideThreads::SideThreads(boost::asio::io_context& io) : queue_(std::make_shared<Queue>(io)) {}

SideThreads::~SideThreads() {
  const std::lock_guard lock(queue_->mutex);
  queue_->io = nullptr;
  queue_->wake.notify_all();
}

Result<void> SideThreads::start() {
  const std::lock_guard lock(queue_->mutex);
  return start_one();
}

// The caller holds the mutex.
Result<void> SideThreads::start_one() {
  try {
    std::thread([queue = queue_] { queue->serve(); }).detach();
  } catch (const std::system_error& error) {
    return fail(ErrorCode::out_of_resources, std::string("weftd: a thread: ") + error.what());
  }
  ++queue_->threads;
  return {};
}

void SideThreads::run(std::function<void()> work, std::function<void()> then) {
  const std::lock_guard lock(queue_->mutex);
  queue_->waiting.push_back({std::move(work), std::move(then)});
  if (queue_->waiting.size() > queue_->threads - queue_->busy && queue_->threads < kMaxThreads) {
    (void)start_one();  // if that fails, the existing threads take the work later
  }
  queue_->wake.notify_one();
}

bool SideThreads::is_full() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->waiting.size() >= kMaxWaiting;
}

}  // namespace weft::daemon
