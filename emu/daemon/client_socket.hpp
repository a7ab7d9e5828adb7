// Owns a connection to a client that may send anything, descriptors included.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "emu/daemon/side_threads.hpp"
#include "srd/io/posix.hpp"

namespace weft::daemon {

// The last close of a descriptor can block for as long as the client that passed it likes (a socket
// with SO_LINGER, a file of a FUSE system). The kernel makes that close in whichever thread
// receives the message without room for the descriptor, or closes the connection with the message
// in it. So every message is peeked at before it is received, and a connection that still holds
// messages is closed on a side thread.
class ClientSocket {
 public:
  // `side` must outlive this object.
  ClientSocket(SideThreads& side, srd::UniqueFd fd);
  ClientSocket(ClientSocket&&) = default;
  ClientSocket& operator=(ClientSocket&&) = delete;
  ~ClientSocket();
  // Ends the connection, makes its descriptor a duplicate of `stand_in`, and passes it to `then`.
  // The number is never free in between, so no other open() can take it.
  using Became = std::function<void(srd::UniqueFd fd)>;
  void become(int stand_in, Became then);

  [[nodiscard]] int get() const { return fd_.get(); }
  // Whether the next message carries descriptors. The end of the connection counts as bare.
  enum class Next { nothing, bare, descriptors };
  [[nodiscard]] Next next() const;
  // Reads text as recv() does. Text that comes with descriptors is an error, EBADMSG.
  [[nodiscard]] ssize_t read(std::span<std::byte> to) const;

 private:
  SideThreads* side_;
  srd::UniqueFd fd_;
};

}  // namespace weft::daemon
