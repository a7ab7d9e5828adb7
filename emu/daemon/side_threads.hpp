// Owns threads for work that clients can make block: receiving the descriptors that they pass, and
// closing them.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <memory>

#include "srd/base/result.hpp"

namespace weft::daemon {

// Work here may never end (a file of a FUSE system that does not answer). run() does not wait for
// it. While one thread is stuck, another takes the next work, up to kMaxThreads. Threads are
// detached and share the queue, so that a stuck one does not keep weftd from ending.
class SideThreads {
 public:
  explicit SideThreads(boost::asio::io_context& io);
  // Does not wait for what is under way.
  ~SideThreads();
  SideThreads(const SideThreads&) = delete;
  SideThreads& operator=(const SideThreads&) = delete;

  [[nodiscard]] Result<void> start();

  // `work` must not use what may be gone with this object; `then` follows on the control thread.
  void run(std::function<void()> work, std::function<void()> then = {});
  // So much work waits that no further client should be accepted.
  [[nodiscard]] bool is_full() const;

  static constexpr std::size_t kMaxWaiting = 256;
  static constexpr std::size_t kMaxThreads = 64;

 private:
  struct Queue;
  [[nodiscard]] Result<void> start_one();
  std::shared_ptr<Queue> queue_;
};

}  // namespace weft::daemon
