// Owns looking up stock functions ahead of time.
#pragma once

namespace weft::preload {

// Makes those wrappers that our own code calls under a lock look up their stock functions now.
// Looking up takes the loader's lock, under which another thread may run a library's constructor
// that opens the device and waits for ours.
void find_stock_functions();

}  // namespace weft::preload
