// Owns how a signal ends a command that has something to clean up.
#pragma once

#include <stdexcept>

namespace weft::launch {

// Thrown by check_interrupt(). Destructors on the way to main() clean up; main() returns 128 +
// signal.
class Interrupted : public std::runtime_error {
 public:
  explicit Interrupted(int signal) : std::runtime_error("interrupted"), signal_(signal) {}
  [[nodiscard]] int signal() const { return signal_; }

 private:
  int signal_;
};

// From the first Interruptible on, SIGINT, SIGTERM, SIGHUP and SIGQUIT do not end the process;
// check_interrupt() throws instead. A signal after the last check_interrupt() has no effect: a
// command that has said what it did exits with that result.
struct Interruptible {
  Interruptible();
};

// To be called from every loop that waits. Does nothing before there is an Interruptible.
void check_interrupt();

// The signal for which check_interrupt() would throw, or 0.
[[nodiscard]] int pending_interrupt();

// In a child process: these signals end it again.
void forget_interrupts();

}  // namespace weft::launch
