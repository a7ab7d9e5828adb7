// Owns the handlers of SIGSEGV and SIGBUS: what is ours is dealt with, everything else is the
// program's, as if they were not there.
#pragma once

namespace weft::preload {

// Takes the two signals over, once. From then on sigaction(), signal() and their relatives, which
// are wrapped, speak of the program's actions behind ours.
void install_fault_signals();

}  // namespace weft::preload
