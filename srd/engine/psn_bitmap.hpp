// Owns one bit for each sequence number of a window, in words aligned to multiples of 64 numbers.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "srd/base/serial.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {

// The bits form a ring of kMaxWindow numbers: its owner clears what falls out of the window.
// Words are aligned, so a selective map goes from receiver to wire to sender without a shift.
// [wire 4.1]
class PsnBitmap {
 public:
  static constexpr std::uint32_t kBits = wire::kMaxWindow;
  static constexpr std::uint32_t kWords = kBits / 64;

  // A window may span this many numbers: one word less than the ring, because the first one is
  // shared.
  static constexpr std::uint32_t kSpan = kBits - 64;

  [[nodiscard]] bool test(Psn psn) const { return (word(psn) >> (psn.value() & 63) & 1) != 0; }
  void set(Psn psn) { word_ref(psn) |= std::uint64_t{1} << (psn.value() & 63); }
  void clear_all() { words_.fill(0); }

  // The aligned word that holds `psn`.
  [[nodiscard]] std::uint64_t word(Psn psn) const { return words_[psn.value() / 64 % kWords]; }

  // Starting at `from`, clears set bits and moves on until one is not set or `end` is reached.
  [[nodiscard]] Psn consume(Psn from, Psn end) {
    while (from.before(end)) {
      const std::uint32_t shift = from.value() & 63;
      const auto run = static_cast<std::uint32_t>(std::countr_one(word(from) >> shift));
      if (run == 0) {
        break;
      }
      // The shift fills with zeros from above, so a run never crosses into the next word.
      const std::uint32_t step = std::min(run, end.minus(from));
      word_ref(from) &= ~(mask_of(step) << shift);
      from = from.plus(step);
      if (step < run || shift + run < 64) {
        break;
      }
    }
    return from;
  }

  // Clears [from, to), which must not be longer than the ring.
  void clear_range(Psn from, Psn to) {
    while (from.before(to)) {
      const std::uint32_t shift = from.value() & 63;
      const std::uint32_t step = std::min(64 - shift, to.minus(from));
      word_ref(from) &= ~(mask_of(step) << shift);
      from = from.plus(step);
    }
  }

 private:
  [[nodiscard]] static constexpr std::uint64_t mask_of(std::uint32_t bits) {
    return bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  }
  [[nodiscard]] std::uint64_t& word_ref(Psn psn) { return words_[psn.value() / 64 % kWords]; }

  std::array<std::uint64_t, kWords> words_{};
};

}  // namespace weft::srd
