// Owns which cores the processes of a run may use, where that decides how fast they answer each
// other.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace weft::launch {

// How many cores this process may use.
[[nodiscard]] std::size_t core_count();

// Keeps a process (0: this one) on the n-th of them; nothing happens where there is only one, or no
// n-th. Threads that exist already stay where they are.
void pin_to_core(pid_t process, std::size_t number);

// Lets a process run on every core but the n-th.
void keep_off_core(pid_t process, std::size_t number);

// Whether frames between two programs pass through weftd and not through a ring of their own: that
// was asked for, or the network is a modelled one.
[[nodiscard]] bool passes_weftd(bool asked_for, const std::string& topology,
                                const std::vector<std::string>& faults);

}  // namespace weft::launch
