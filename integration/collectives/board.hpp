// Owns the memory that the ranks of a run share besides the network: where each rank listens,
// barriers, results, and what each is doing.
//
// The ranks are processes that were forked after this memory was mapped, so all see it at the same
// address. It holds atomics and arrays only: a rank that is killed at any point leaves nothing
// locked.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "integration/collectives/net.hpp"
#include "integration/collectives/rank_activity.hpp"

namespace weft::collectives {

inline constexpr std::uint32_t kMaxRanks = 64;
inline constexpr std::uint32_t kMaxChannels = 32;

// How the receiving rank tells its listener's handle to the sending one: the handle is complete
// once `ready` is set.
struct Mail {
  std::atomic<bool> ready{false};
  Handle handle{};
};

// The shared memory of a run: this object and, behind it, a Mail for each connection. Made by
// create() before the ranks are forked, in memory that is all zero; never destroyed.
class Board {
 public:
  [[nodiscard]] static std::size_t bytes(std::uint32_t ranks, std::uint32_t channels) {
    return sizeof(Board) + sizeof(Mail) * ranks * ranks * (channels + 1);
  }
  static Board& create(void* memory, std::uint32_t ranks, std::uint32_t channels) {
    auto* const board = new (memory) Board;
    board->ranks_ = ranks;
    board->channels_ = channels;
    auto* const mails = static_cast<std::byte*>(memory) + sizeof(Board);
    for (std::size_t i = 0; i < std::size_t{ranks} * ranks * (channels + 1); ++i) {
      new (mails + i * sizeof(Mail)) Mail;
    }
    return *board;
  }

  // Of the connection between two ranks; the channel after the last is for point to point.
  [[nodiscard]] Mail& mail(std::uint32_t from, std::uint32_t to, std::uint32_t channel) {
    auto* const mails = reinterpret_cast<Mail*>(reinterpret_cast<std::byte*>(this) + sizeof(Board));
    return mails[(std::size_t{from} * ranks_ + to) * (channels_ + 1) + channel];
  }

  // The first reason counts; the others mostly follow from it. The text is there before `aborted_`
  // says so.
  void give_up(const std::string& why) {
    if (!claimed_.exchange(true)) {
      std::strncpy(reason_.data(), why.c_str(), reason_.size() - 1);
      aborted_.store(true, std::memory_order_release);
    }
  }
  [[nodiscard]] bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string reason() const { return reason_.data(); }

  // The process of the rank is gone, as the run asked for. Ranks that have requests in flight with
  // it must learn that from the plugin; only barriers look at this.
  void is_gone(std::uint32_t rank) { gone_.store(rank + 1, std::memory_order_release); }

  [[nodiscard]] std::uint32_t ranks() const { return ranks_; }
  [[nodiscard]] RankActivity& where(std::uint32_t rank) { return where_.at(rank); }

  // Returns when all ranks have come. Throws if one of them cannot come any more. Nobody makes
  // progress on a plugin here: settle first.
  void barrier(std::uint32_t rank) {
    constexpr int kLooks = 4096;  // before it is worth telling
    // Taken before arriving: the last one to arrive may begin the next generation at once.
    const std::uint32_t generation = generation_.load(std::memory_order_acquire);
    where(rank).moved();
    if (arrived_.fetch_add(1) + 1 == ranks_) {
      // Before the generation changes: a rank that is let through may come to the next barrier at
      // once.
      arrived_.store(0);
      generation_.fetch_add(1, std::memory_order_release);
      return;
    }
    for (int looks = 0; generation_.load(std::memory_order_acquire) == generation; ++looks) {
      if (aborted()) {
        throw std::runtime_error("another rank gave up: " + reason());
      }
      if (const std::uint32_t gone = gone_.load(std::memory_order_acquire); gone != 0) {
        throw std::runtime_error("rank " + std::to_string(gone - 1) +
                                 " is gone, and nothing was under way with it");
      }
      if (looks == kLooks) {
        where(rank).say("waits for the other ranks at a barrier");
      }
      ::sched_yield();
    }
    // The rank that let us through has seen all others arrive, and by that so have we. The thread
    // sanitizer knows only what this process did: that its other ranks have arrived before us it
    // learns here, when the last one to arrive was elsewhere.
    (void)arrived_.load(std::memory_order_acquire);
    where(rank).say("");
  }
  // The sum of the values that all ranks give. All have to call it, as a barrier. The second
  // barrier keeps a rank that is ahead from writing its next value before all have read this one.
  [[nodiscard]] double sum(std::uint32_t rank, double value) {
    values_.at(rank) = value;
    barrier(rank);
    double all = 0;
    for (std::uint32_t i = 0; i < ranks_; ++i) {
      all += values_.at(i);
    }
    barrier(rank);
    return all;
  }

 private:
  std::uint32_t ranks_ = 0;
  std::uint32_t channels_ = 0;
  std::atomic<std::uint32_t> arrived_{0};
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<bool> claimed_{false};
  std::atomic<bool> aborted_{false};
  std::array<char, 256> reason_{};
  std::atomic<std::uint32_t> gone_{0};  // a rank plus one
  std::array<double, kMaxRanks> values_{};
  std::array<RankActivity, kMaxRanks> where_{};
};
static_assert(sizeof(Board) % alignof(Mail) == 0);

}  // namespace weft::collectives
