// Owns the queue of that thread.
#include "emu/daemon/side_thread.hpp"

#include <boost/asio/post.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace weft::emu {
struct SideThread::Queue {
  struct Entry {
    std::function<void()> work;
    std::function<void()> then;
  };

  explicit Queue(boost::asio::io_context& control) : io(&control) {}

  void serve() {
    for (;;) {
      Entry entry;
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [this] { return io == nullptr || !waiting.empty(); });
        if (io == nullptr) {
          return;
        }
        entry = std::move(waiting.front());
        waiting.pop_front();
      }
      entry.work();
      const std::lock_guard lock(mutex);
      if (io != nullptr && entry.then) {
        boost::asio::post(*io, std::move(entry.then));
      }
    }
  }

  std::mutex mutex;
  std::condition_variable wake;
  std::deque<Entry> waiting;
  boost::asio::io_context* io;  // null: nobody is there any more
};

SideThread::SideThread(boost::asio::io_context& io) : queue_(std::make_shared<Queue>(io)) {}

SideThread::~SideThread() {
  const std::lock_guard lock(queue_->mutex);
  queue_->io = nullptr;
  queue_->wake.notify_one();
}

Result<void> SideThread::start() {
  try {
    std::thread([queue = queue_] { queue->serve(); }).detach();
  } catch (const std::system_error& error) {
    return fail(ErrorCode::out_of_resources, std::string("weftd: a thread: ") + error.what());
  }
  return {};
}

void SideThread::run(std::function<void()> work, std::function<void()> then) {
  const std::lock_guard lock(queue_->mutex);
  queue_->waiting.push_back({std::move(work), std::move(then)});
  queue_->wake.notify_one();
}

bool SideThread::is_full() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->waiting.size() >= kMostWaiting;
}

}  // namespace weft::emu
