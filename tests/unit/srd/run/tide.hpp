// Owns a machine and a carrier for tests of hosts in real threads: packets come from other threads,
// posted work has deadlines, and all of it is counted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "srd/io/posix.hpp"
#include "srd/net/packet_io.hpp"
#include "srd/run/host.hpp"

namespace weft::srd {

// Sends one packet for each that was posted. Each makes a deadline, which must not be missed. All
// calls run under the host's lock, in whichever thread has it.
class TideMachine final : public Machine {
 public:
  void on_packet(TimePoint, const RxPacket&) override { ++packets; }
  void on_timeout(TimePoint now) override {
    if (deadline_ <= now) {
      deadline_ = kNever;
    }
  }
  [[nodiscard]] bool next_transmit(TimePoint now, TxPacket& out) override {
    if (asked) {
      std::exchange(asked, nullptr)();
    }
    if (sent.load(std::memory_order_relaxed) == posted.load(std::memory_order_acquire)) {
      return false;
    }
    ++sent;
    sent_at = now;
    deadline_ = std::min(deadline_, now + patience);
    out.header_size = 64;
    out.payload = {};
    return true;
  }
  [[nodiscard]] TimePoint next_timeout() const override {
    if (settling) {
      std::exchange(settling, nullptr)();
    }
    return deadline_;
  }
  // Every packet is data for the program's memory.
  [[nodiscard]] std::uint64_t placed_bytes() const { return static_cast<std::uint64_t>(packets); }
  [[nodiscard]] bool idle() const { return sent == posted; }

  // From any thread.
  std::atomic<int> posted{0};
  std::atomic<int> sent{0};
  std::atomic<int> packets{0};
  // Of the thread that has the machine.
  std::function<void()> asked;             // called by the next look for something to send
  mutable std::function<void()> settling;  // called by the next look for a deadline
  Duration patience = std::chrono::milliseconds{5};
  TimePoint sent_at{};

 private:
  TimePoint deadline_ = kNever;
};

// Packets without content, with the same rule for waking a sleeper as rings have. The two fences
// make sure that of a sleeper and a sender at least one sees what the other has written.
class TideIo final : public PacketIo {
 public:
  // From another thread.
  void arrive() {
    waiting_.fetch_add(1, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (asleep_.load(std::memory_order_relaxed) != 0 && asleep_.exchange(0) != 0) {
      signal_event_fd(bell_.get());
    }
  }
  [[nodiscard]] bool asleep() const { return asleep_ != 0; }

  [[nodiscard]] IoCapabilities capabilities() const override { return {.burst = kBurst}; }
  [[nodiscard]] IoCounters counters() const override { return {}; }
  [[nodiscard]] std::span<const RxPacket> receive() override {
    const int there = std::min(waiting_.load(std::memory_order_acquire), int{kBurst});
    waiting_.fetch_sub(there);
    return {packets_.data(), static_cast<std::size_t>(there)};
  }
  void release() override {}
  [[nodiscard]] std::size_t transmit(std::span<const TxPacket> packets) override {
    return packets.size();
  }
  [[nodiscard]] std::size_t transmit_room() override { return kBurst; }
  [[nodiscard]] int wait_fd() const override { return bell_.get(); }
  [[nodiscard]] bool arm() override {
    asleep_ = 1;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (waiting_.load(std::memory_order_relaxed) != 0) {
      disarm();
      return false;
    }
    return true;
  }
  void disarm() override {
    asleep_ = 0;
    clear_event_fd(bell_.get());
  }

 private:
  static constexpr int kBurst = 4;
  UniqueFd bell_ = std::move(*create_event_fd());
  std::atomic<int> waiting_{0};
  std::atomic<int> asleep_{0};
  std::array<RxPacket, kBurst> packets_{};
};

// The machine and the carrier belong to the host; the pointers are the test's way to them.
struct TideHost {
  TideHost() {
    auto own_machine = std::make_unique<TideMachine>();
    auto own_io = std::make_unique<TideIo>();
    machine = own_machine.get();
    io = own_io.get();
    host = std::move(*Host<TideMachine>::create(std::move(own_machine), std::move(own_io)));
  }
  // All deadlines have been met.
  [[nodiscard]] bool is_quiet() const {
    return host->look([](TideMachine& only) { return only.next_timeout() == kNever; });
  }

  TideMachine* machine;
  TideIo* io;
  std::unique_ptr<Host<TideMachine>> host;
};

}  // namespace weft::srd
