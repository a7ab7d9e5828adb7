// Owns ignoring signals of failed writes, and what was there before.
#include "emu/launch/write_signals.hpp"

#include <signal.h>

namespace weft::launch {
namespace {

struct sigaction before {};  // of SIGXFSZ; SIG_DFL

}  // namespace

void ignore_write_signals() {
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignored, nullptr);
  ::sigaction(SIGXFSZ, &ignored, &before);
}

void restore_write_signals() {
  ::signal(SIGPIPE, SIG_DFL);
  ::sigaction(SIGXFSZ, &before, nullptr);
}

}  // namespace weft::launch
