// Owns reading how late receives are to be.
#include "emu/devices/late_receives.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace weft::devices {

Duration late_receives_of_environment() {
  constexpr long kMaxMicroseconds = 60'000'000;
  const char* const text = std::getenv("WEFT_LATE_RECEIVES");
  return std::chrono::microseconds{
      text == nullptr ? 0 : std::clamp(std::strtol(text, nullptr, 10), 0L, kMaxMicroseconds)};
}

}  // namespace weft::devices
