// Owns what weftd and attached processes agree on besides messages: where containers find its
// socket, and how weftd learns that a process has ended.
#pragma once

#include "srd/io/posix.hpp"

namespace weft::attach {

// In weftd's directory: the folder that containers mount.
inline constexpr const char* kShareFolder = "share";

// A pidfd of the process at the other end, which may belong to another pid namespace. None if it
// has ended, or if the kernel cannot tell (it is older than 6.5, and the process has no number
// here).
[[nodiscard]] srd::UniqueFd peer_pidfd(int socket);

}  // namespace weft::attach
