// Owns stopping this process for a while, as a debugger or a full machine would.
#pragma once

namespace weft::collectives {

// Stops this process with all its threads; returns when it has gone on.
void stand_still(double seconds);

}  // namespace weft::collectives
