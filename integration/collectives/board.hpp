// Owns the memory that the ranks of a run share besides the network: where each rank listens,
// barriers, results, and what each is doing.
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

struct Mail {
  std::atomic<bool> ready{false};
  Handle handle{};
};

// Lies in memory that is zero at first, with a Mail for each connection behind it.
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

  void give_up(const std::string& why) {
    if (!claimed_.exchange(true)) {
      std::strncpy(reason_.data(), why.c_str(), reason_.size() - 1);
      aborted_.store(true, std::memory_order_release);
    }
  }
  [[nodiscard]] bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string reason() const { return reason_.data(); }

  // Its process is no more. Ranks that have something under way with it learn that from the plugin.
  void is_gone(std::uint32_t rank) { gone_.store(rank + 1, std::memory_order_release); }

  [[nodiscard]] std::uint32_t ranks() const { return ranks_; }
  [[nodiscard]] RankActivity& where(std::uint32_t rank) { return where_.at(rank); }

  void barrier(std::uint32_t rank) {
    constexpr int kLooks = 4096;  // before it is worth telling
    const std::uint32_t generation = generation_.load(std::memory_order_acquire);
    where(rank).moved();
    if (arrived_.fetch_add(1) + 1 == ranks_) {
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
    where(rank).say("");
  }
  // Of what all ranks say.
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
