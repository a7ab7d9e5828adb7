// Owns the bytes by which a descriptor is readable.
#include "emu/kernel/readable_pair.hpp"

#include <sys/socket.h>

#include <cerrno>

#include "emu/kernel/native.hpp"

namespace weft::kernel {

ReadablePair::~ReadablePair() {
  for (const int fd : {ours_, theirs_}) {
    if (fd >= 0) {
      native::close(fd);
    }
  }
}

int ReadablePair::open() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return -1;
  }
  ours_ = native::move_high(pair[0]);
  theirs_ = native::duplicate_high(pair[1]);
  if (theirs_ < 0) {
    const int error = errno;
    native::close(pair[1]);
    errno = error;
    return -1;
  }
  theirs_ = keep_fd(theirs_);
  return pair[1];
}

void ReadablePair::signal(std::size_t waiting) {
  std::byte byte{};
  while (bytes_ < waiting &&
         native::send(ours_, &byte, sizeof byte, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) {
    ++bytes_;
  }
  while (bytes_ > waiting && native::receive(theirs_, &byte, sizeof byte, MSG_DONTWAIT) == 1) {
    --bytes_;
  }
}

}  // namespace weft::kernel
