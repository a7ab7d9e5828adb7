// Owns calls of the control thread that the forwarding thread executes, between two rounds.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "srd/base/result.hpp"
#include "srd/io/posix.hpp"

namespace weft::daemon {

// This is how the control thread reaches what belongs to forwarding. It waits for the forwarding
// thread, never the other way round, and there is no lock. One call is under way at a time, since
// there is one caller and it waits for the result; so all clients of the control side together add
// one call to a round.
class RoundCalls {
 public:
  [[nodiscard]] Result<void> open();

  // --- The control thread.

  // Executes `call` between two rounds and returns its result; an exception of it is thrown here.
  // Before begin() the caller executes it itself.
  template <class F>
  std::invoke_result_t<F> run(F&& call) {
    using Value = std::invoke_result_t<F>;
    if constexpr (std::is_void_v<Value>) {
      execute([&] { call(); });
    } else {
      std::optional<Value> value;
      execute([&] { value.emplace(call()); });
      return std::move(*value);
    }
  }

  // --- The forwarding thread.

  // From now on it calls serve().
  void begin() { begun_ = true; }
  // Executes the call that waits. False: none does.
  bool serve() {
    if (waiting_.load(std::memory_order_relaxed) == nullptr) [[likely]] {
      return false;
    }
    serve_waiting();
    return true;
  }
  // Has an edge when a call comes while this thread sleeps. It need not be read: watch edges.
  [[nodiscard]] int wait_fd() const { return bell_.get(); }
  // Before sleeping. False: a call waits.
  [[nodiscard]] bool arm();
  void disarm() { asleep_.store(false, std::memory_order_relaxed); }

 private:
  struct Call {
    void (*execute)(void* closure);
    void* closure;
    std::exception_ptr error{};
  };

  template <class F>
  void execute(F&& closure) {
    if (!begun_) {
      closure();
      return;
    }
    Call call{[](void* it) { (*static_cast<std::remove_reference_t<F>*>(it))(); }, &closure};
    hand_over(call);
    if (call.error) {
      std::rethrow_exception(call.error);
    }
  }
  void hand_over(Call& call);
  void serve_waiting();

  bool begun_ = false;  // set before there is a second thread
  std::atomic<Call*> waiting_{nullptr};
  std::atomic<std::uint32_t> served_{0};
  std::atomic<bool> asleep_{false};
  srd::UniqueFd bell_;  // an eventfd: no other process has it
};

}  // namespace weft::daemon
