// Owns stopping this process for a while, as a debugger or a full machine would.
#pragma once

namespace weft::collectives {

// With all its threads. Returns when it goes on.
void stand_still(double seconds);

}  // namespace weft::collectives
