// Owns the output of one cell: a file that grows to a limit, whatever its programs print.
#pragma once

#include <cstddef>
#include <string>

#include "srd/io/posix.hpp"

namespace weft::cli {

// Programs write into a pipe, and what comes out of it goes into the file. Behind the limit, and
// when the file cannot be written, it is read and forgotten: the program never waits for a reader.
class CellLog {
 public:
  static constexpr std::size_t kMax = std::size_t{64} << 20;

  // Throws where there cannot be one.
  explicit CellLog(const std::string& path);

  // Where programs write; the caller owns it, and may take it once.
  [[nodiscard]] srd::UniqueFd take_writer() { return std::move(writer_); }
  // To be polled for input; -1: no process can write any more.
  [[nodiscard]] int reader() const { return reader_.get(); }
  // Takes what has come, without waiting for more.
  void read();
  // From now on nothing more is read.
  void close() { reader_.reset(); }

  [[nodiscard]] bool is_full() const { return size_ > kMax; }
  // Why the file lacks something that was printed before the limit: an errno, or 0.
  [[nodiscard]] int failure() const { return failure_; }

 private:
  void write(const char* data, std::size_t size);

  srd::UniqueFd file_;
  srd::UniqueFd reader_;
  srd::UniqueFd writer_;
  std::size_t size_ = 0;  // of what has come
  int failure_ = 0;
};

}  // namespace weft::cli
