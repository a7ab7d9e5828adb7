// Owns a descriptor of the program's that is readable while something waits to be fetched.
#pragma once

#include <cstddef>

namespace weft::kernel {

// One end of a stream socket pair is the program's descriptor, so that poll, epoll and O_NONBLOCK
// are native. A byte lies in it for each thing that waits, for epoll's edges, as far as the socket
// has room.
class ReadablePair {
 public:
  ReadablePair() = default;
  ~ReadablePair();
  ReadablePair(const ReadablePair&) = delete;
  ReadablePair& operator=(const ReadablePair&) = delete;

  // The program's descriptor, or -1 with errno set.
  [[nodiscard]] int open();
  // After each change of what waits.
  void signal(std::size_t waiting);

 private:
  int ours_ = -1;
  int theirs_ = -1;  // a duplicate
  std::size_t bytes_ = 0;
};

}  // namespace weft::kernel
