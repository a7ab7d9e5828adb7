// Owns file descriptors and mappings as values, and the few system calls of shared memory rings.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "srd/base/fd_keeper.hpp"
#include "srd/base/result.hpp"
#include "srd/base/time.hpp"

namespace weft::srd {

class UniqueFd {
 public:
  UniqueFd() = default;
  // May move the descriptor to another number: inside a program that is not ours, FdKeeper keeps
  // our descriptors away from the low numbers that the program expects to get.
  explicit UniqueFd(int fd);
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  // The caller owns the descriptor from now on.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

// While it lives, the thread cannot be cancelled: for system calls made under a lock, which a
// cancelled thread would leave taken.
class Uncancellable {
 public:
  Uncancellable();
  ~Uncancellable();
  Uncancellable(const Uncancellable&) = delete;
  Uncancellable& operator=(const Uncancellable&) = delete;

 private:
  int before_ = 0;
};

// Memory shared with another process.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      unmap();
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { unmap(); }

  // Refuses memory whose size is another one, or could shrink under us: reading past its end would
  // be fatal.
  [[nodiscard]] static Result<Mapping> map(int memfd, std::size_t size);
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  void unmap();
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Anonymous shared memory of a size that cannot be changed any more.
[[nodiscard]] Result<UniqueFd> create_shared_memory(const char* name, std::size_t size);

// A file to write into, made if it is not there: emptied, or to be appended to. Only a regular file
// is accepted: opening or filling a pipe could wait for ever.
enum class Existing { empty, append };
[[nodiscard]] Result<UniqueFd> open_to_write(const std::string& path, Existing existing);

// An eventfd with which one thread of this process wakes another. Never give it to another process,
// which could make signalling it block (bell.hpp is what wakes other processes).
[[nodiscard]] Result<UniqueFd> create_event_fd();
// Never blocks; signalling again what is signalled already changes nothing.
void signal_event_fd(int fd);
void clear_event_fd(int fd);

// CLOCK_MONOTONIC, computed from the processor's tick counter where that is reliable; readings of
// two threads may then differ by a microsecond, and a reading for which the clock itself was asked
// may lie some microseconds before the one before it. Machines get their time as an argument
// instead.
[[nodiscard]] TimePoint clock_now();

// "what: text of errno"
[[nodiscard]] std::string errno_text(const std::string& what);

}  // namespace weft::srd
