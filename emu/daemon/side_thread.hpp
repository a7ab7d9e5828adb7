// Owns a thread for what clients can make last: looking at the descriptors that they pass, and
// closing them.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <memory>

#include "srd/base/result.hpp"

namespace weft::emu {

// What is done here may take for ever: a file of a FUSE system that does not answer. Then what was
// handed over later waits as well; whoever hands over does not.
class SideThread {
 public:
  explicit SideThread(boost::asio::io_context& io);
  // Does not wait for what is under way.
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  [[nodiscard]] Result<void> start();

  // `work` must not touch what may be gone with this; `then` follows it on the control thread.
  void run(std::function<void()> work, std::function<void()> then = {});
  // So much waits that nobody more should be let in.
  [[nodiscard]] bool is_full() const;

  static constexpr std::size_t kMostWaiting = 256;

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;
};

}  // namespace weft::emu
