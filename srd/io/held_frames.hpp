// Owns copies of frames that a link had no room for: one burst, for a while.
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

// For links whose room is not known beforehand: they take a burst whole, and keep here what the
// link refused. The caller offers no further frames until flush() has emptied it, so one burst is
// all it ever holds. After `patience` without a frame taken, the rest is dropped: a reader that has
// stopped must not stop its writer. It is waited for once: until the link takes a frame again, what
// it refuses is dropped at the next flush().
class HeldFrames {
 public:
  HeldFrames(std::size_t capacity, std::size_t max_frame, Duration patience)
      : capacity_(capacity),
        max_frame_(max_frame),
        patience_(patience),
        bytes_(std::make_unique<std::byte[]>(capacity * max_frame)) {
    sizes_.reserve(capacity);
  }

  [[nodiscard]] bool empty() const { return first_ == sizes_.size(); }
  [[nodiscard]] std::size_t size() const { return sizes_.size() - first_; }
  // Copies the frame, which has at most max_frame bytes. False: there is no room.
  [[nodiscard]] bool hold(TimePoint now, const TxFrame& frame) {
    if (sizes_.size() == capacity_) {
      return false;
    }
    if (sizes_.empty()) {
      since_ = now;
    }
    std::byte* to = bytes_.get() + sizes_.size() * max_frame_;
    for (const auto& piece : frame.pieces) {
      if (!piece.empty()) {
        std::memcpy(to, piece.data(), piece.size());
        to += piece.size();
      }
    }
    sizes_.push_back(frame.size());
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
      ++first_;
      moved = true;
    }
    if (moved) {
      since_ = now;
      has_stopped_ = false;
    }
    const bool gives_up = !moved && (has_stopped_ || now - since_ >= patience_);
    const std::size_t given_up = gives_up ? size() : 0;
    if (gives_up || empty()) {
      sizes_.clear();
      first_ = 0;
      has_stopped_ = has_stopped_ || gives_up;
    }
    return given_up;
  }

 private:
  std::size_t capacity_;
  std::size_t max_frame_;
  Duration patience_;
  std::unique_ptr<std::byte[]> bytes_;
  std::vector<std::size_t> sizes_;
  // Frames before this one have left.
  std::size_t first_ = 0;
  // When the link last took a frame, or refused the first.
  TimePoint since_{};
  bool has_stopped_ = false;
};

}  // namespace weft::srd
