// Owns the proof that no chunk is read before it is there, and no place written before it is read,
// in any order of arrival.
#include "integration/workloads/chunk_ring.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft::workloads {
namespace {

// A ring whose messages arrive in any order, and both of its ends. What is written into a place is
// the number of the chunk, so a chunk that is read has to be the next one.
class Network {
 public:
  Network(Ordering ordering, std::uint32_t places, std::uint64_t seed)
      : ordering_(ordering),
        rng_(seed),
        sender_(places),
        receiver_(places),
        memory_(places),
        is_being_sent_(places) {}

  void run(std::uint64_t chunks) {
    while (taken_ < chunks) {
      ASSERT_TRUE(step(chunks)) << "nothing can go on at chunk " << taken_;
    }
    while (!under_way_.empty()) {
      arrive();
    }
    EXPECT_EQ(waiting_, 0U);
  }

  OrderingCounters totals;
  std::uint64_t wrong = 0;

 private:
  enum class Kind { chunk, tail, head, acknowledgement };
  struct Message {
    Kind kind;
    Mark mark{};
    std::uint64_t chunk = 0;
    std::uint32_t place = 0;
  };

  // One thing that is possible, by lot; false: nothing is.
  bool step(std::uint64_t chunks) {
    const bool has_number = ordering_ != Ordering::sequence || numbers_.has_room();
    const bool can_write = has_number && written_ < chunks && sender_.has_room();
    const bool can_tell = has_number && sender_.may_tell(ordering_);
    if (!can_write && !can_tell && under_way_.empty() && !head_due_) {
      return false;
    }
    switch (rng_.below(4)) {
      case 0:
        if (can_write) {
          EXPECT_FALSE(is_being_sent_[sender_.place()]);
          is_being_sent_[sender_.place()] = true;
          send(Kind::chunk, {.group = sender_.place()}, written_++, sender_.place());
          sender_.on_written();
        }
        break;
      case 1:
        if (can_tell) {
          send(Kind::tail, sender_.tail());
          sender_.on_told();
        }
        break;
      case 2:
        if (head_due_) {
          under_way_.push_back({Kind::head, {.value = receiver_.head()}});
          head_due_ = false;
        }
        break;
      default:
        if (!under_way_.empty()) {
          arrive();
        }
    }
    return true;
  }

  void send(Kind kind, Mark mark, std::uint64_t chunk = 0, std::uint32_t place = 0) {
    mark.sequence = ordering_ == Ordering::sequence ? numbers_.take() : 0;
    under_way_.push_back({kind, mark, chunk, place});
  }

  void arrive() {
    const std::size_t at = rng_.below(static_cast<std::uint32_t>(under_way_.size()));
    const Message one = under_way_[at];
    under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(at));
    switch (one.kind) {
      case Kind::head:
        EXPECT_TRUE(sender_.take_head(one.mark.value));
        return;
      case Kind::acknowledgement:
        if (!one.mark.counter) {
          is_being_sent_[one.place] = false;
          sender_.on_acknowledged(one.place);
        }
        numbers_.acknowledge(one.mark.sequence);
        return;
      case Kind::chunk:
        memory_[one.place] = one.chunk;
        break;
      case Kind::tail:
        break;
    }
    const bool marked =
        one.kind == Kind::tail || ordering_ == Ordering::count || ordering_ == Ordering::sequence;
    if (marked) {
      receiver_.take(ordering_, one.mark, totals, waiting_);
    }
    under_way_.push_back({Kind::acknowledgement, one.mark, one.chunk, one.place});
    while (receiver_.ready()) {
      wrong += memory_[receiver_.place()] == taken_ ? 0U : 1U;
      receiver_.on_taken();
      ++taken_;
      head_due_ = true;
    }
  }

  Ordering ordering_;
  Rng rng_;
  RingSender sender_;
  RingReceiver receiver_;
  SequenceWindow numbers_;
  std::vector<std::optional<std::uint64_t>> memory_;
  std::vector<bool> is_being_sent_;  // from this place of the sender's own memory
  std::vector<Message> under_way_;
  std::uint64_t written_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t waiting_ = 0;
  bool head_due_ = false;
};

// So many that the numbers on the wire come round.
TEST(ChunkRing, ChunksAreReadInTheirOrderWhenTheyAreThere) {
  for (const std::uint32_t places : {1U, 2U, 7U, 100U}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      for (const Ordering ordering : {Ordering::count, Ordering::sequence, Ordering::strong}) {
        SCOPED_TRACE(std::string(kOrderingNames[static_cast<int>(ordering)]) + ", " +
                     std::to_string(places) + " places, seed " + std::to_string(seed));
        Network network(ordering, places, seed);
        network.run(2 * Mark::kMaxValue + 9);
        EXPECT_EQ(network.wrong, 0U);
        EXPECT_EQ(network.totals.stray, 0U);
        EXPECT_EQ(network.totals.counters, 2 * Mark::kMaxValue + 9);
        if (ordering != Ordering::strong) {
          EXPECT_GT(network.totals.held, 0U);
        }
      }
      Network none(Ordering::none, places, seed);
      none.run(1000);
      EXPECT_GT(none.wrong, 0U) << "the others may have been right by luck";
    }
  }
}

TEST(ChunkRing, WhatNoSenderOfOursSaysIsCountedAndChangesNothing) {
  OrderingCounters totals;
  std::uint64_t waiting = 0;
  RingReceiver receiver(4);
  receiver.take(Ordering::strong, {.counter = true, .group = 4, .value = 1}, totals, waiting);
  receiver.take(Ordering::strong, {.counter = true, .value = 5}, totals, waiting);
  EXPECT_FALSE(receiver.ready());
  EXPECT_EQ(totals.stray, 2U);
  RingReceiver counting(4);
  for (int i = 0; i < 2; ++i) {
    counting.take(Ordering::count, {.counter = true, .group = 2}, totals, waiting);
    counting.take(Ordering::count, {.group = 1}, totals, waiting);
  }
  EXPECT_EQ(totals.stray, 4U);
  EXPECT_EQ(waiting, 1U);

  RingSender sender(4);
  EXPECT_FALSE(sender.take_head(1)) << "nothing was sent";
  sender.on_written();
  EXPECT_TRUE(sender.take_head(1));
  EXPECT_TRUE(sender.take_head(0)) << "an earlier one, late";
  EXPECT_FALSE(sender.take_head(2));
}

}  // namespace
}  // namespace weft::workloads
