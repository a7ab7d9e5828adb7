// Owns copies of frames that a link had no room for, in their order, for a while.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "srd/base/time.hpp"
#include "srd/io/frame_io.hpp"

namespace weft::srd {

// For links whose room is not known beforehand: they take frames as long as there is room here, and
// keep what the link refused. After `patience` without a frame taken, the rest is dropped: a reader
// that has stopped must not stop its writer. It is waited for once: until the link takes a frame
// again, what it refuses is dropped at the next flush().
class HeldFrames {
 public:
  HeldFrames(std::size_t capacity, std::size_t max_frame, Duration patience)
      : capacity_(capacity),
        max_frame_(max_frame),
        patience_(patience),
        bytes_(std::make_unique_for_overwrite<std::byte[]>(capacity * max_frame)),
        sizes_(capacity) {}

  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] std::size_t room() const { return capacity_ - count_; }
  // Copies the frame, which has at most max_frame bytes. False: there is no room.
  [[nodiscard]] bool hold(TimePoint now, const TxFrame& frame) {
    if (room() == 0) {
      return false;
    }
    if (empty()) {
      since_ = now;
    }
    const std::size_t place = (first_ + count_) % capacity_;
    std::byte* to = bytes_.get() + place * max_frame_;
    for (const auto& piece : frame.pieces) {
      if (!piece.empty()) {
        std::memcpy(to, piece.data(), piece.size());
        to += piece.size();
      }
    }
    sizes_[place] = frame.size();
    ++count_;
    return true;
  }
  // Sends what it can with send(frame), which says whether the link took it. Returns how many are
  // given up because the link has taken nothing for too long.
  template <class Send>
  std::size_t flush(TimePoint now, Send&& send) {
    if (empty()) {
      return 0;
    }
    bool moved = false;
    while (!empty() &&
           send(std::span<const std::byte>(bytes_.get() + first_ * max_frame_, sizes_[first_]))) {
      first_ = (first_ + 1) % capacity_;
      --count_;
      moved = true;
    }
    if (moved) {
      since_ = now;
      has_stopped_ = false;
    }
    const bool gives_up = !moved && (has_stopped_ || now - since_ >= patience_);
    const std::size_t given_up = gives_up ? size() : 0;
    if (gives_up) {
      count_ = 0;
      has_stopped_ = true;
    }
    return given_up;
  }

 private:
  std::size_t capacity_;
  std::size_t max_frame_;
  Duration patience_;
  std::unique_ptr<std::byte[]> bytes_;
  // A ring, of which `count_` places are used from `first_` on.
  std::vector<std::size_t> sizes_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  // When the link last took a frame, or refused the first.
  TimePoint since_{};
  bool has_stopped_ = false;
};

}  // namespace weft::srd
