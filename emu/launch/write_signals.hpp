// Owns which signals weft ignores so that a write fails instead, and that programs inherit none of
// that.
#pragma once

namespace weft::launch {

// A pipe without a reader (SIGPIPE), a file that would be larger than `ulimit -f` (SIGXFSZ): both
// would end this process, and what it has made would stay.
void ignore_write_signals();
// In a process that is about to become another program. Without a call of the former it does
// nothing but give SIGPIPE its usual effect.
void restore_write_signals();

}  // namespace weft::launch
