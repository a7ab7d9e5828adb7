// Owns the two processes of `weft demo`: one writes blocks into the other's memory, which checks
// every byte.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "emu/cli/rendezvous.hpp"
#include "srd/base/time.hpp"
#include "srd/base/units.hpp"
#include "srd/engine/observer.hpp"

namespace weft::cli {

inline constexpr std::size_t kDemoPaths = 64;
inline constexpr std::size_t kDemoBlock = std::size_t{1} << 16;  // bytes
inline constexpr std::size_t kDemoSlots = 16;                    // blocks under way

// What the two processes share with the one that shows it all. It carries no payload. It lies in
// memory that is mapped before the fork, so it holds no pointers, and its atomics are lock-free.
// Each field has one writer, named below, except `failed`, which any side may set and none clears;
// `stop` is set by the showing process.
struct DemoBoard {
  static constexpr std::size_t kEvents = 4096;
  struct Noted {
    srd::Event::Kind kind{};
    std::int64_t when = 0;  // nanoseconds of the monotonic clock
    std::uint16_t path = 0;
  };
  // Where the receiver is; valid once `meeting` is 1.
  Rendezvous receiver;
  std::atomic<std::uint32_t> meeting{0};  // 1: the receiver is there
  std::atomic<bool> stop{false};          // the sender finishes what it began
  std::atomic<bool> sent{false};          // the sender has finished: every slot is free
  std::atomic<bool> failed{false};

  // The receiver's.
  std::atomic<std::uint64_t> verified_bytes{0};
  std::atomic<std::uint64_t> verified_blocks{0};
  std::atomic<std::uint64_t> wrong_blocks{0};
  std::atomic<std::int64_t> last_progress{0};  // nanoseconds of the monotonic clock
  std::atomic<std::int64_t> longest_gap{0};    // nanoseconds between two good blocks

  // The sender's.
  std::atomic<std::uint64_t> completed_blocks{0};
  std::atomic<std::uint64_t> failed_blocks{0};
  std::atomic<std::uint64_t> packets{0};
  std::atomic<std::uint64_t> retransmitted{0};
  std::atomic<std::uint64_t> lost{0};
  std::array<std::atomic<std::uint64_t>, kDemoPaths> path_packets{};
  std::atomic<std::uint32_t> events{0};  // noted so far; those beyond kEvents are lost
  std::array<Noted, kEvents> event{};
};

// Both processes make the same blocks from the seed: the receiver knows what must arrive.
struct DemoPlan {
  std::string socket;  // weftd's
  std::uint64_t seed = 1;
};

// The bodies of the processes; they return when all is sent or `failed` is set, and throw
// std::runtime_error.
void run_demo_sender(DemoBoard& board, const DemoPlan& plan);
void run_demo_receiver(DemoBoard& board, const DemoPlan& plan);

}  // namespace weft::cli
