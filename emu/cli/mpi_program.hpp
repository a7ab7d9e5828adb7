// Owns telling MPI programs from others.
#pragma once

#include <string>

namespace weft::cli {

// Whether an MPI library is among those that the program, a path or a name in PATH, says it needs.
[[nodiscard]] bool wants_mpi(const std::string& program);

}  // namespace weft::cli
