// Owns threads for what clients can make last: looking at the descriptors that they pass, and
// closing them.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <memory>

#include "srd/base/result.hpp"

namespace weft::daemon {

// Work here may never end (a file of a FUSE system that does not answer). run() does not wait for
// it. While one thread is stuck another takes what follows, up to kMostThreads.
class SideThreads {
 public:
  explicit SideThreads(boost::asio::io_context& io);
  // Does not wait for what is under way.
  ~SideThreads();
  SideThreads(const SideThreads&) = delete;
  SideThreads& operator=(const SideThreads&) = delete;

  [[nodiscard]] Result<void> start();

  // `work` must not touch what may be gone with this; `then` follows it on the control thread.
  void run(std::function<void()> work, std::function<void()> then = {});
  // So much waits that nobody more should be let in.
  [[nodiscard]] bool is_full() const;

  static constexpr std::size_t kMostWaiting = 256;
  static constexpr std::size_t kMostThreads = 64;

 private:
  struct Queue;
  [[nodiscard]] Result<void> start_one();
  std::shared_ptr<Queue> queue_;
};

}  // namespace weft::daemon
