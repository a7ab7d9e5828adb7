// Owns one end of a bell between two processes that do not trust each other: ringing it wakes the
// process that waits at the other end.
#pragma once

#include <utility>

#include "srd/base/result.hpp"
#include "srd/io/posix.hpp"

namespace weft::srd {

// Each end is a socket with an open file description of its own, held by one process only: so no
// flag, option or lock of one side is the other's. Of what a peer can do to its own end,
// - leaving ours unread fills our send buffer: a ring is lost then, and it was meant for that peer;
// - sending much, or closing, makes an edge in our epoll set and no more: wait for edges only;
// - sending descriptors would make us close them, which can take as long as their last owner likes
//   (SO_LINGER): ends refuse them, see clear().
// Why no other primitive: the description of an eventfd is shared, and with it O_NONBLOCK and the
// count, so that a peer makes write() wait or wake-ups vanish. A pipe is locked while its reader
// copies, for ever if the reader's memory is served by FUSE. A timerfd takes 20 us where timers
// belong to a hypervisor.
class Bell {
 public:
  // Kernels before 6.16 cannot refuse descriptors on a socket.
  enum class Refusal { by_kernel, by_looking };

  Bell() = default;
  Bell(Bell&& other) noexcept : fd_(std::move(other.fd_)), refusal_(other.refusal_) {}
  Bell& operator=(Bell&& other) noexcept;
  ~Bell() { close(); }

  [[nodiscard]] static Result<std::pair<Bell, Bell>> create_pair();
  // An end that came from another process. `wanted` is for tests, which play an older kernel.
  [[nodiscard]] static Result<Bell> adopt(UniqueFd fd, Refusal wanted = Refusal::by_kernel);

  // To give it to another process, or to wait for edges on it.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Another process holds this end now: our descriptor is closed, the end stays open there.
  void given_away() { fd_.reset(); }
  // Wakes the process at the other end, if it waits there. Never blocks.
  void ring() const;
  // Call it after each edge, to make room for later rings; never blocks. False: the other side sent
  // descriptors; do not read from this end any more.
  [[nodiscard]] bool clear() const;

 private:
  void close();

  UniqueFd fd_;
  Refusal refusal_ = Refusal::by_looking;
};

}  // namespace weft::srd
