// Owns handing captured frames to a thread that writes them: only that thread waits for the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "srd/base/result.hpp"
#include "srd/base/time.hpp"

namespace weft::daemon {

// Valid only during the call that it is passed to.
struct CapturedFrame {
  std::uint32_t interface = 0;
  std::uint64_t time = 0;  // nanoseconds of the calendar
  std::span<const std::byte> bytes;
  std::string_view comment;
};

// One thread pushes. A frame that finds no room is dropped and counted.
class CaptureQueue {
 public:
  // Called on the writing thread, which outlives this object while the disk does not answer.
  struct Sink {
    std::function<void(const CapturedFrame&)> write;
    std::function<void()> flush;  // the queue is empty for now
  };
  // Room for what a link of 100 Gb/s carries while the writing thread sleeps.
  static constexpr std::size_t kBytes = std::size_t{32} << 20;
  // `bytes` is a power of two.
  [[nodiscard]] static Result<std::unique_ptr<CaptureQueue>> start(Sink sink,
                                                                   std::size_t bytes = kBytes);
  // Waits a moment for the disk, unless finish() has waited already.
  ~CaptureQueue();
  CaptureQueue(const CaptureQueue&) = delete;
  CaptureQueue& operator=(const CaptureQueue&) = delete;

  void push(const CapturedFrame& frame);
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

  // Call it after the last push(). False: after `patience` the last frames are still being written.
  bool finish(Duration patience);

 private:
  struct Shared;
  explicit CaptureQueue(std::shared_ptr<Shared> shared);

  std::shared_ptr<Shared> shared_;
  std::uint64_t head_ = 0;
  std::uint64_t dropped_ = 0;
  bool finished_ = false;
};

}  // namespace weft::daemon
