// Owns the handlers of SIGSEGV and SIGBUS: faults of our own code are dealt with, all others reach
// the program as if these handlers did not exist.
#pragma once

namespace weft::preload {

// Takes the two signals over, once. From then on the wrapped sigaction(), signal() and their
// relatives read and change the program's actions, which ours calls.
void install_fault_signals();

}  // namespace weft::preload
