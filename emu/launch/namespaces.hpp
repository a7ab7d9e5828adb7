// Owns making private network namespaces, which takes no root where there are user namespaces.
#pragma once

#include <string>
#include <vector>

#include "srd/base/result.hpp"

namespace weft::launch {

// Moves this process, and all that it starts, into a new user and network namespace, in which it
// may make devices. Its user stays the same for files. Root stays in its user namespace if it can
// make none. Call it before there are threads.
[[nodiscard]] Result<void> enter_private_network();

// Runs the `ip` program with these words, and waits for it. An error names the line, and what to
// install.
[[nodiscard]] Result<void> run_ip(const std::vector<std::string>& words);

}  // namespace weft::launch
