// Owns telling a child of vfork() from other processes, and whose memory this is.
#pragma once

#include <sys/types.h>

namespace weft::preload {

// False in a child of vfork(): it has descriptors and signal actions of its own, but its memory is
// its parent's, and so are our tables in it.
[[nodiscard]] bool is_own_memory();

// Whether this memory is that process's, or a child of vfork() shares it. False in a copy that a
// child got past fork(), by clone() or _Fork(). Costs no system call.
[[nodiscard]] bool is_memory_of(pid_t process);

}  // namespace weft::preload
