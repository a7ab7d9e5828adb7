// Owns which cores the processes of a run may use, where that decides how fast they answer each
// other.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace weft::launch {

// Of those that this process may use.
[[nodiscard]] std::size_t core_count();

// Keeps a process (0: this one) on the n-th of them; nothing happens where there is only one.
void pin_to_core(pid_t process, std::size_t number);

// Lets a process run on every core but the n-th.
void keep_off_core(pid_t process, std::size_t number);

}  // namespace weft::launch
