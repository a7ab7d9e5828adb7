// Owns the proof that a thread which polls the last word of a line, or of a message, reads what was
// written before it. It reads while another thread writes, on purpose.
#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>

#include "srd/base/line_copy.hpp"

namespace weft {
namespace {

constexpr std::size_t kLines = 16;
constexpr std::size_t kWords = kLineBytes / sizeof(std::uint64_t);
constexpr std::size_t kFlag = kWords - 1;
constexpr int kLooks = 1000;  // at all lines, before the other one may run

// All words of a message are its number. They are written over and over again.
class Slot {
 public:
  template <class Copy>
  void write(Copy copy) {
    ++number_;
    std::array<std::uint64_t, kLines * kWords> message;
    message.fill(number_);
    copy(reinterpret_cast<std::byte*>(words_.data()),
         reinterpret_cast<const std::byte*>(message.data()), sizeof words_);
  }
  [[nodiscard]] std::uint64_t at(std::size_t line, std::size_t word) const {
    return __atomic_load_n(&words_[line * kWords + word], __ATOMIC_ACQUIRE);
  }

 private:
  std::uint64_t number_ = 0;
  alignas(kLineBytes) std::array<std::uint64_t, kLines * kWords> words_{};
};

// Words that were older than the flag, which was seen first. `words`: those of which `of_line` is
// the flag.
template <class Copy, class Old>
std::uint64_t count_torn(Copy copy, Old old_words) {
  constexpr std::uint64_t kEnough = 10'000;  // changes of a flag
  Slot slot;
  std::atomic<bool> done{false};
  std::uint64_t torn = 0;
  std::thread reader([&] {
    std::array<std::uint64_t, kLines> seen{};
    // On a machine with one core the two threads take turns, and a reader sees a change only
    // between turns: each yields after so many looks or writes.
    for (std::uint64_t changes = 0; changes < kEnough; ::sched_yield()) {
      for (int look = 0; look < kLooks; ++look) {
        for (std::size_t line = 0; line < kLines; ++line) {
          const std::uint64_t flag = slot.at(line, kFlag);
          if (flag != seen[line]) {
            seen[line] = flag;
            ++changes;
            torn += old_words(slot, line, flag);
          }
        }
      }
    }
    done = true;
  });
  for (std::uint64_t writes = 1; !done; ++writes) {
    slot.write(copy);
    if (writes % kLooks == 0) {
      ::sched_yield();
    }
  }
  reader.join();
  return torn;
}

TEST(LineCopyOrder, FlagOfALineIsSeenAfterItsData) {
  const auto old_of_line = [](const Slot& slot, std::size_t line, std::uint64_t flag) {
    std::uint64_t old = 0;
    for (std::size_t word = 0; word < kFlag; ++word) {
      old += slot.at(line, word) < flag ? 1 : 0;
    }
    return old;
  };
  EXPECT_EQ(count_torn(copy_lines, old_of_line), 0U);
  // A packet may lie in two pieces, wherever it is cut.
  std::size_t cut = 0;
  const auto in_pieces = [&cut](std::byte* to, const std::byte* from, std::size_t length) {
    cut = cut % (length - 1) + 1;
    copy_lines(to, from, cut);
    copy_lines(to + cut, from + cut, length - cut);
  };
  EXPECT_EQ(count_torn(in_pieces, old_of_line), 0U);
}

TEST(LineCopyOrder, EndOfAMessageIsSeenAfterAllOfIt) {
  // Messages of 256, 254, 127, 32 and 16 words: memcpy() has an order of its own for each size.
  for (const std::size_t first : {0, 2, 129, 224, 240}) {  // word of the slot
    const auto from_there = [first](std::byte* to, const std::byte* from, std::size_t length) {
      const std::size_t skipped = first * sizeof(std::uint64_t);
      copy_end_last(to + skipped, from + skipped, length - skipped);
    };
    const auto old_of_message = [first](const Slot& slot, std::size_t line, std::uint64_t end) {
      std::uint64_t old = 0;
      for (std::size_t word = first; line == kLines - 1 && word < kLines * kWords - 1; ++word) {
        old += slot.at(0, word) < end ? 1 : 0;
      }
      return old;
    };
    EXPECT_EQ(count_torn(from_there, old_of_message), 0U) << "from word " << first;
  }
}

}  // namespace
}  // namespace weft
