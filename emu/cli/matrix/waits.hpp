// Owns saying what processes wait for, as far as the kernel tells without root.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace weft::cli {

// A line for each process that `ancestor` has started, by itself or by others, and that lives on an
// emulated host.
[[nodiscard]] std::vector<std::string> what_descendants_wait_for(pid_t ancestor);

}  // namespace weft::cli
