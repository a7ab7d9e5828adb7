// Owns the messages from the forwarding thread to the control thread: events in forwarding on which
// control has to act.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "srd/base/result.hpp"
#include "srd/io/posix.hpp"
#include "srd/net/address.hpp"

namespace weft::daemon {

// Names a process without a pointer: it may be gone when the notice is read.
struct SlotKey {
  std::uint32_t nic = 0;  // its place among all NICs
  std::uint16_t id = 0;
  srd::Life life;

  friend bool operator==(const SlotKey&, const SlotKey&) = default;
};

struct Notice {
  enum class Kind : std::uint8_t {
    flow,     // frames of `slot` go to `peer`: a direct ring may be worth it
    broken,   // `slot` wrote nonsense into its ring or bell, and is served no more
    drained,  // `slot`, which was retired, can be taken out
    link,     // of the NIC `slot.nic`: see `up`
  };
  Kind kind{};
  bool up = false;
  SlotKey slot{};
  SlotKey peer{};
};

// A bounded queue with one writer and one reader; neither waits. The writer owns `written_` and
// `pushed_`, the reader `read_`; `rung_` is true from the ring until the reader clears the bell, so
// that many notices cost one system call. A notice that finds no room is pushed again in a later
// round.
class Notices {
 public:
  [[nodiscard]] Result<void> open();

  // --- The forwarding thread.
  [[nodiscard]] bool push(const Notice& notice);
  // At the end of a round: one wake-up for all.
  void flush() {
    if (pushed_) [[unlikely]] {
      wake_reader();
    }
  }

  // --- The control thread, when wait_fd() is readable. False: none is left.
  [[nodiscard]] int wait_fd() const { return bell_.get(); }
  void clear_bell();
  [[nodiscard]] bool pop(Notice& notice);

 private:
  static constexpr std::size_t kCapacity = 256;

  void wake_reader();

  std::array<Notice, kCapacity> notices_{};
  alignas(64) std::atomic<std::size_t> written_{0};
  alignas(64) std::atomic<std::size_t> read_{0};
  std::atomic<bool> rung_{false};
  bool pushed_ = false;  // since the last flush()
  srd::UniqueFd bell_;
};

}  // namespace weft::daemon
