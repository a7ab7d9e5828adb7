// Owns writing to a standard stream whose reader may be slow, stopped or gone: it never blocks.
#pragma once

#include <cstddef>
#include <string>

#include "srd/io/posix.hpp"

namespace weft::launch {

// Text is added, and written as far as there is room; the rest waits here.
class StreamWriter {
 public:
  explicit StreamWriter(int fd);

  void add(const std::string& text) { pending_ += text; }
  [[nodiscard]] std::size_t pending() const { return pending_.size(); }
  // So much is pending that no more output should be read from the programs: they wait for the
  // reader then, as they would without us.
  [[nodiscard]] bool is_full() const { return pending_.size() >= kFull; }
  // To be polled for POLLOUT while something is pending.
  [[nodiscard]] int fd() const { return own_ ? own_.get() : fd_; }
  // Writes as much as there is room for. False: the reader is gone, and what was pending is
  // dropped.
  [[nodiscard]] bool write_some();
  // The errno for which output was lost although the stream has a reader, or 0.
  [[nodiscard]] int failure() const { return failure_; }
  void drop() { pending_.clear(); }

 private:
  static constexpr std::size_t kFull = std::size_t{1} << 18;

  int fd_;
  // The same pipe or terminal through an open file description of our own. O_NONBLOCK belongs to
  // the description, and others have the one that we were started with.
  srd::UniqueFd own_;
  bool is_socket_ = false;
  int failure_ = 0;
  std::string pending_;
};

}  // namespace weft::launch
