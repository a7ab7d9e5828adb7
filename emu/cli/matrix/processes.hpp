// Owns what the kernel says of processes, as far as it tells without root.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace weft::cli {

struct ProcessState {
  std::string name;
  char state = '?';
  pid_t parent = 0;
};

[[nodiscard]] std::map<pid_t, ProcessState> all_processes();

// A program on an emulated host, and what it does.
struct Wait {
  pid_t pid = 0;
  std::string text;
};

// One for each process that `ancestor` has started, by itself or by others, and that lives on an
// emulated host.
[[nodiscard]] std::vector<Wait> what_descendants_wait_for(pid_t ancestor);

}  // namespace weft::cli
