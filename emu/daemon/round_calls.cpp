// Owns passing calls from one thread to another.
#include "emu/daemon/round_calls.hpp"

namespace weft::daemon {

Result<void> RoundCalls::open() {
  auto bell = srd::create_event_fd();
  if (!bell) {
    return tl::unexpected(bell.error());
  }
  bell_ = std::move(*bell);
  return {};
}

void RoundCalls::hand_over(Call& call) {
  const std::uint32_t before = served_.load(std::memory_order_relaxed);
  waiting_.store(&call, std::memory_order_release);
  // Each side writes its own word, makes a full fence, and reads the other's: either this thread
  // sees that the other sleeps, or arm() over there sees the call.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (asleep_.exchange(false, std::memory_order_relaxed)) {
    srd::signal_event_fd(bell_.get());
  }
  served_.wait(before, std::memory_order_acquire);
}

void RoundCalls::serve_waiting() {
  Call& call = *waiting_.load(std::memory_order_acquire);
  try {
    call.execute(call.closure);
  } catch (...) {
    call.error = std::current_exception();
  }
  // `call` lies on the caller's stack: it must not be touched once the caller sees the number.
  waiting_.store(nullptr, std::memory_order_relaxed);
  served_.fetch_add(1, std::memory_order_release);
  served_.notify_one();
}

bool RoundCalls::arm() {
  asleep_.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (waiting_.load(std::memory_order_relaxed) != nullptr) {
    disarm();
    return false;
  }
  return true;
}

}  // namespace weft::daemon
