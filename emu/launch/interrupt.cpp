// Owns the signal handlers of commands that clean up when they are interrupted.
#include "emu/launch/interrupt.hpp"

#include <signal.h>

#include <array>

namespace weft::launch {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT};

volatile sig_atomic_t received = 0;

void receive(int signal) { received = signal; }

// Without SA_RESTART: a signal interrupts system calls that wait.
void set_handlers(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  for (const int signal : kSignals) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) {  // nohup
      ::sigaction(signal, &action, nullptr);
    }
  }
}

}  // namespace

Interruptible::Interruptible() { set_handlers(receive); }

void check_interrupt() {
  if (const int signal = received; signal != 0) {
    received = 0;
    throw Interrupted(signal);
  }
}

int pending_interrupt() { return received; }

void forget_interrupts() { set_handlers(SIG_DFL); }

}  // namespace weft::launch
