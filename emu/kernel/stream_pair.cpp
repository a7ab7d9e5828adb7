// Owns making a stream socket pair, and closing our descriptors of it.
#include "emu/kernel/stream_pair.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>

#include "emu/kernel/native.hpp"

namespace weft::kernel {

void let_go(StreamEnds& ends) {
  if (ends.holders.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    native::close(ends.ours);
    native::close(ends.duplicate);
    delete &ends;
  }
}

StreamPair::~StreamPair() {
  if (ends_ == nullptr) {
    return;
  }
  if (ends_->holders.load(std::memory_order_relaxed) > 1) {
    // What lies there would wake who sleeps on. Whoever begins to sleep, or begins again after a
    // signal, is to know that nothing comes any more.
    std::array<std::byte, 256> unread;
    while (native::receive(ends_->duplicate, unread.data(), unread.size(), MSG_DONTWAIT) > 0) {
    }
    native::make_nonblocking(ends_->duplicate);
  }
  let_go(*ends_);
}

// The first one of the pair has the lowest number, which is what the program gets of the kernel.
int StreamPair::open() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return -1;
  }
  const int duplicate = native::duplicate_high(pair[0]);
  if (duplicate < 0) {
    const int error = errno;
    native::close(pair[0]);
    native::close(pair[1]);
    errno = error;
    return -1;
  }
  ends_ = new StreamEnds{.ours = native::move_high(pair[1]), .duplicate = keep_fd(duplicate)};
  return pair[0];
}

}  // namespace weft::kernel
