// Owns telling a child of vfork() from other processes.
#pragma once

namespace weft::preload {

// False in a child of vfork(): it has descriptors and signal actions of its own, but its memory is
// its parent's, and so are our tables in it.
[[nodiscard]] bool is_own_memory();

}  // namespace weft::preload
