// Owns ending what a run left behind whose weft was killed.
#pragma once

#include <string>

namespace weft::launch {

// Kills this user's processes that belong to the network in `directory`, a temporary one whose
// owner has ended: its weftd, and programs that were started on its hosts, with all that came of
// them. They are known by that path on their command line or in the environment that they were
// started with, and no other network ever has the same.
void end_processes_of(const std::string& directory);

}  // namespace weft::launch
