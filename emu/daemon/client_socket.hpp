// Owns a connection to a client who may send anything.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "emu/daemon/side_threads.hpp"
#include "srd/io/posix.hpp"

namespace weft::daemon {

// The last close of a descriptor that a client has passed can wait for as long as that client
// likes, and the kernel does it in whatever thread receives it without room for it, or closes the
// connection before it is received. So nothing is received before a look at what it brings, and a
// connection in which something is left is closed on a side thread.
class ClientSocket {
 public:
  ClientSocket(SideThreads& side, srd::UniqueFd fd);
  ClientSocket(ClientSocket&&) = default;
  ClientSocket& operator=(ClientSocket&&) = delete;
  ~ClientSocket();
  // Ends the connection, and hands its descriptor over when that has become another one of
  // `stand_in`: in between the number is nobody else's.
  using Became = std::function<void(srd::UniqueFd fd)>;
  void become(int stand_in, Became then);

  [[nodiscard]] int get() const { return fd_.get(); }
  // Of the next message: whether it brings descriptors. The end of the connection is bare.
  enum class Next { nothing, bare, descriptors };
  [[nodiscard]] Next next() const;
  // Of text: as recv() does. One that comes with descriptors is an error.
  [[nodiscard]] ssize_t read(std::span<std::byte> to) const;

 private:
  SideThreads* side_;
  srd::UniqueFd fd_;
};

}  // namespace weft::daemon
