// Owns a stream socket pair of which one end is the program's descriptor.
#pragma once

namespace weft::kernel {

// So read, poll, epoll and O_NONBLOCK on the program's end are native. We hold the other end to
// write to, and a duplicate of the program's to take back what it has not read.
class StreamPair {
 public:
  StreamPair() = default;
  ~StreamPair();
  StreamPair(const StreamPair&) = delete;
  StreamPair& operator=(const StreamPair&) = delete;

  // The program's descriptor, which is its to close, or -1 with errno set.
  [[nodiscard]] int open();
  [[nodiscard]] int ours() const { return ours_; }
  [[nodiscard]] int duplicate() const { return duplicate_; }

 private:
  int ours_ = -1;
  int duplicate_ = -1;
};

}  // namespace weft::kernel
