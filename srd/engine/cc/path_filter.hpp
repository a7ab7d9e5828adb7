// Owns the view of a peer through its paths: what most of the recently used ones say, whatever a
// few of them do.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "srd/engine/types.hpp"

namespace weft::srd {

// The newest sample of each of the last paths that were heard of. One bad path is one voice,
// however many packets it delayed or lost. Times and delays are in nanoseconds and 32 bits: a clock
// that wraps after 4 s can at worst take a very old sample for a new one.
class PathFilter {
 public:
  static constexpr std::uint8_t kPaths = 16;

  struct View {
    std::uint32_t delay = 0;  // nearly two thirds of the paths are at least as slow
    bool marked = false;      // nearly two thirds of the paths are marked
  };

  void add(PathId path, std::uint32_t delay, bool marked, std::uint32_t now) {
    const std::uint8_t slot = slot_of(path.value());
    paths_[slot] = path.value();
    delays_[slot] = delay;
    times_[slot] = now;
    const auto bit = static_cast<std::uint16_t>(1U << slot);
    marks_ = static_cast<std::uint16_t>(marked ? marks_ | bit : marks_ & ~bit);
  }

  // More than one path was heard of.
  [[nodiscard]] bool several() const { return count_ > 1; }

  // The longest delay of the samples that are not older than `age`.
  [[nodiscard]] std::uint32_t longest(std::uint32_t now, std::uint32_t age) const {
    std::uint32_t longest = 0;
    for (unsigned i = 0; i < count_; ++i) {
      longest = std::max(longest, now - times_[i] <= age ? delays_[i] : 0);
    }
    return longest;
  }

  // Of the samples that are not older than `age`.
  [[nodiscard]] View view(std::uint32_t now, std::uint32_t age) const {
    std::array<std::uint32_t, kPaths> delays;  // only the first `count` are used
    unsigned count = 0;
    unsigned marked = 0;
    for (unsigned i = 0; i < count_; ++i) {
      const bool young = now - times_[i] <= age;
      delays[count] = delays_[i];
      count += young ? 1U : 0U;
      marked += young ? (static_cast<unsigned>(marks_) >> i) & 1U : 0U;
    }
    if (count == 0) {
      return {};
    }
    auto* const quantile = delays.data() + (count - 1) * kQuantilePercent / 100;
    std::nth_element(delays.data(), quantile, delays.data() + count);
    return {*quantile, marked * 100 >= count * (100 - kQuantilePercent)};
  }

 private:
  // Below the median: a peer is called congested only if clearly more than half of its paths are.
  static constexpr unsigned kQuantilePercent = 35;

  [[nodiscard]] std::uint8_t slot_of(std::uint16_t path) {
    for (std::uint8_t slot = 0; slot < count_; ++slot) {
      if (paths_[slot] == path) {
        return slot;
      }
    }
    if (count_ < kPaths) {
      return count_++;
    }
    const std::uint8_t slot = oldest_;
    oldest_ = static_cast<std::uint8_t>((oldest_ + 1) % kPaths);
    return slot;
  }

  std::array<std::uint32_t, kPaths> delays_{};
  std::array<std::uint32_t, kPaths> times_{};
  std::array<std::uint16_t, kPaths> paths_{};
  std::uint16_t marks_ = 0;
  std::uint8_t count_ = 0;
  std::uint8_t oldest_ = 0;  // the slot that is replaced next
};

}  // namespace weft::srd
