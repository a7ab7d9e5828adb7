// Owns surviving faults in our own copies from and to the application's buffers.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstddef>

namespace weft::preload {

// The function for LentMemory::touch: runs work(argument), which copies from or to [begin, begin +
// length). False: that memory is gone, and the work was given up in the middle. The work must hold
// nothing that has to be given back. Costs a few nanoseconds per call.
[[nodiscard]] bool guarded_touch(void (*work)(void*), void* argument, const void* begin,
                                 std::size_t length);

// In a handler of SIGSEGV or SIGBUS. True: this thread was in a guarded touch of that address; it
// ends with false when the handler returns.
[[nodiscard]] bool leave_guarded_touch(const siginfo_t& info, ucontext_t& context);

// This thread may block the two signals again: a fault that is blocked would end the process.
void signal_mask_changed();

}  // namespace weft::preload
