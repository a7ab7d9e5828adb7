// Owns which signals weft ignores so that a write fails instead, and that programs inherit none of
// that.
#pragma once

namespace weft::launch {

// A pipe without a reader (SIGPIPE), a file that would be larger than `ulimit -f` (SIGXFSZ): both
// would end this process, and what it has made would stay.
void ignore_write_signals();
// In a process that is about to become another program: SIGPIPE has its usual effect again, and
// SIGXFSZ what it had when weft began.
void restore_write_signals();

}  // namespace weft::launch
