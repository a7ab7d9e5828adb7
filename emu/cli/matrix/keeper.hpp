// Owns a process that stands between the matrix and one `weft run`, and that ends whatever is left
// when the run has ended.
//
// The matrix itself cannot do it: it would have to take orphans of all cells for its children, and
// could not tell whose they are.
#pragma once

#include <signal.h>

#include <string>
#include <vector>

namespace weft::cli {

// To a keeper: what it keeps is killed. SIGTERM it passes on.
inline constexpr int kKillKept = SIGUSR1;

// In a child process: runs the program at `path` with both output streams on `output`, and exits
// with its exit code, or 128 + signal. What the program started and left behind comes to the
// keeper, also out of sessions of its own, and is killed; nothing else is touched. If `parent`, our
// own, dies, all of it ends.
[[noreturn]] void keep(const std::string& path, const std::vector<std::string>& words, int output,
                       pid_t parent);

}  // namespace weft::cli
