// Owns a descriptor of the program's that is readable while something waits to be fetched.
#pragma once

#include <cstddef>

#include "emu/kernel/stream_pair.hpp"

namespace weft::kernel {

// A byte lies in the program's end of the pair for each thing that waits, for epoll's edges, as far
// as the socket has room.
class ReadablePair {
 public:
  // The program's descriptor, or -1 with errno set.
  [[nodiscard]] int open() { return pair_.open(); }
  [[nodiscard]] StreamEnds* ends() const { return pair_.ends(); }
  // After each change of what waits.
  void signal(std::size_t waiting);

 private:
  StreamPair pair_;
  std::size_t bytes_ = 0;
};

}  // namespace weft::kernel
