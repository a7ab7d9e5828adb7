// Owns a descriptor that the control thread waits for.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <utility>

#include "emu/daemon/client_socket.hpp"
#include "srd/io/posix.hpp"

namespace weft::daemon {

// Handlers run on the thread of the io_context. A handler that was queued already may run after
// this object is gone, also without an error: so it must not capture a pointer to what it serves,
// but a number by which it looks that up.
template <class Fd>
class WatchOf {
 public:
  WatchOf(boost::asio::io_context& io, Fd fd) : fd_(std::move(fd)), descriptor_(io, fd_.get()) {}
  ~WatchOf() { descriptor_.release(); }
  WatchOf(const WatchOf&) = delete;
  WatchOf& operator=(const WatchOf&) = delete;

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const Fd& watched() const { return fd_; }
  // Calls `handler` once, when there is something to read, or the end of the connection.
  template <class Handler>
  void when_readable(Handler handler) {
    descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                           [handler = std::move(handler)](const boost::system::error_code& error) {
                             if (!error) {
                               handler();
                             }
                           });
  }

 private:
  Fd fd_;
  boost::asio::posix::stream_descriptor descriptor_;
};

using Watch = WatchOf<srd::UniqueFd>;
using ClientWatch = WatchOf<ClientSocket>;

}  // namespace weft::daemon
