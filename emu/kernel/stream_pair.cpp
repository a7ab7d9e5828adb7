// Owns making a stream socket pair, and closing our descriptors of it.
#include "emu/kernel/stream_pair.hpp"

#include <sys/socket.h>

#include <cerrno>

#include "emu/kernel/native.hpp"

namespace weft::kernel {

StreamPair::~StreamPair() {
  for (const int fd : {ours_, duplicate_}) {
    if (fd >= 0) {
      native::close(fd);
    }
  }
}

int StreamPair::open() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return -1;
  }
  ours_ = native::move_high(pair[0]);
  duplicate_ = native::duplicate_high(pair[1]);
  if (duplicate_ < 0) {
    const int error = errno;
    native::close(pair[1]);
    errno = error;
    return -1;
  }
  duplicate_ = keep_fd(duplicate_);
  return pair[1];
}

}  // namespace weft::kernel
