// Owns the mixed policy: recycle the paths of clean acknowledgements, and let the bitmap choose the
// others.
#pragma once

#include <array>
#include <cstdint>

#include "srd/engine/paths/bitmap.hpp"

namespace weft::srd {

// Unlike REPS each recycled path is used once and forgotten, and exploring avoids paths with
// trouble.
class MixedPolicy {
 public:
  MixedPolicy(std::uint16_t paths, std::uint64_t seed) : bitmap_(paths, seed) {}

  [[nodiscard]] PathId pick(TimePoint now) {
    if (count_ == 0 || ++since_explored_ >= kExploreEvery) {
      since_explored_ = 0;
      return bitmap_.pick(now);
    }
    const std::uint16_t path = recycled_[first_];
    first_ = static_cast<std::uint8_t>((first_ + 1) % kRecycled);
    --count_;
    return PathId{path};
  }
  void on_feedback(TimePoint now, PathId path, PathEvent event, Duration rtt) {
    if (event == PathEvent::good) {
      add(path.value());
      return;
    }
    if (event == PathEvent::timeout) {
      remove(path.value());
    }
    bitmap_.on_feedback(now, path, event, rtt);
  }

 private:
  // Recycled paths alone never find out that a path that was congested once has become free.
  static constexpr std::uint8_t kExploreEvery = 16;
  // Enough for the acknowledgements that arrive together; the newest ones tell most.
  static constexpr std::uint8_t kRecycled = 16;

  void add(std::uint16_t path) {
    if (count_ == kRecycled) {
      first_ = static_cast<std::uint8_t>((first_ + 1) % kRecycled);
      --count_;
    }
    recycled_[(first_ + count_) % kRecycled] = path;
    ++count_;
  }
  void remove(std::uint16_t path) {
    std::uint8_t kept = 0;
    for (std::uint8_t i = 0; i < count_; ++i) {
      const std::uint16_t candidate = recycled_[(first_ + i) % kRecycled];
      if (candidate != path) {
        recycled_[(first_ + kept++) % kRecycled] = candidate;
      }
    }
    count_ = kept;
  }

  std::array<std::uint16_t, kRecycled> recycled_{};
  BitmapPolicy bitmap_;
  std::uint8_t first_ = 0;
  std::uint8_t count_ = 0;
  std::uint8_t since_explored_ = 0;
};

}  // namespace weft::srd
