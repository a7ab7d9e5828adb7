// Owns converting the time of this machine into that of the modelled network, and back.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "emu/fabric/picos.hpp"
#include "srd/base/time.hpp"

namespace weft::daemon {

// The network counts picoseconds, of which 64 bits hold 106 days. In a long run its count is set
// back while nothing is inside, by rewind(), and this class remembers by how much. All arithmetic
// is in integers: time never goes back, and at(when(t)) is t or later, so a thread that sleeps
// until when(t) does not wake too early.
class ModelClock {
 public:
  // `dilation` seconds here are one second in the network; weftd accepts 0.001 to 1000000.
  ModelClock(TimePoint start, double dilation)
      : start_(start), rate_(std::llround(std::ldexp(1000.0 / dilation, kRateBits))) {
    if (rate_ % (std::int64_t{1} << kRateBits) == 0) {
      whole_ = rate_ >> kRateBits;
    }
  }

  // The network's count. It stops at kLatest until it is set back.
  static constexpr fabric::Picos kLatest = INT64_MAX - (fabric::Picos{1} << 60);
  [[nodiscard]] fabric::Picos at(TimePoint now) const {
    const Wide passed = (Wide{nanoseconds(now - start_)} * rate_ >> kRateBits) - rewound_;
    return static_cast<fabric::Picos>(std::clamp<Wide>(passed, 0, kLatest));
  }
  // The first moment at which at() is `count`.
  [[nodiscard]] TimePoint when(fabric::Picos count) const {
    const Wide passed = (((count + rewound_) << kRateBits) + rate_ - 1) / rate_;
    return passed < nanoseconds(kNever - start_)
               ? start_ + Duration{static_cast<std::int64_t>(passed)}
               : kNever;
  }
  [[nodiscard]] Duration here(fabric::Picos span) const {
    if (whole_ != 0) [[likely]] {
      return Duration{span / whole_};
    }
    return Duration{static_cast<std::int64_t>((Wide{span} << kRateBits) / rate_)};
  }
  // The network's time since it began.
  [[nodiscard]] Duration since_start(fabric::Picos count) const {
    return Duration{static_cast<std::int64_t>((count + rewound_) / 1000)};
  }
  // The network has set its count back by so much.
  void rewind(fabric::Picos by) { rewound_ += by; }

 private:
  using Wide = __int128;
  static constexpr int kRateBits = 40;

  TimePoint start_;
  std::int64_t rate_;  // picoseconds there per nanosecond here, in 2^-kRateBits
  // The same, where it is a whole number: a division by 128 bits takes long. Otherwise 0.
  std::int64_t whole_ = 0;
  Wide rewound_ = 0;
};

}  // namespace weft::daemon
