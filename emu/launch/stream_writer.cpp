// Owns how each kind of stream is written without blocking.
#include "emu/launch/stream_writer.hpp"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace weft::launch {

StreamWriter::StreamWriter(int fd) : fd_(fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    return;
  }
  is_socket_ = S_ISSOCK(info.st_mode);
  // Not for a file: a second open file description would have an offset of its own.
  if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    own_ = srd::UniqueFd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  }
}

bool StreamWriter::write_some() {
  std::size_t done = 0;
  bool is_read = true;
  while (done < pending_.size()) {
    pollfd ready{fd(), POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) {
      break;
    }
    // Without a description of our own: a pipe that polls as writable has room for PIPE_BUF.
    const std::size_t size = std::min<std::size_t>(pending_.size() - done, PIPE_BUF);
    const ssize_t written =
        is_socket_ ? ::send(fd(), pending_.data() + done, size, MSG_DONTWAIT | MSG_NOSIGNAL)
                   : ::write(fd(), pending_.data() + done, size);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      // A full disk loses the output and not the run; a reader that left ends it.
      is_read = errno != EPIPE;
      failure_ = is_read ? errno : failure_;
      done = pending_.size();
    }
  }
  pending_.erase(0, done);
  return is_read;
}

}  // namespace weft::launch
