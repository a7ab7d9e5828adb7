// Owns a stream socket pair of which one end is the program's descriptor.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::kernel {

// Our two descriptors of a pair. They stay open, and this in its place, until the last holder lets
// go: the pair itself, and threads that sleep until something can be read.
struct StreamEnds {
  int ours = -1;
  int duplicate = -1;  // of the program's
  std::atomic<std::uint32_t> holders{1};
};
void let_go(StreamEnds& ends);

// So read, poll, epoll and O_NONBLOCK on the program's end are native. We hold the other end to
// write to, and a duplicate of the program's to take back what it has not read.
class StreamPair {
 public:
  StreamPair() = default;
  // A thread that sleeps at the pair's ends is not woken, now or later. One that begins to sleep
  // there does not (EAGAIN).
  ~StreamPair();
  StreamPair(const StreamPair&) = delete;
  StreamPair& operator=(const StreamPair&) = delete;

  // The program's descriptor, which is its to close, or -1 with errno set. To be called once.
  [[nodiscard]] int open();
  // -1 before that.
  [[nodiscard]] int ours() const { return ends_ == nullptr ? -1 : ends_->ours; }
  [[nodiscard]] int duplicate() const { return ends_ == nullptr ? -1 : ends_->duplicate; }
  // Null before open().
  [[nodiscard]] StreamEnds* ends() const { return ends_; }

 private:
  StreamEnds* ends_ = nullptr;
};

}  // namespace weft::kernel
