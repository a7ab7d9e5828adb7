// Owns the lock between DPDK's interrupt thread and the thread that polls.
#pragma once

#include <mutex>

namespace weft::srd::dpdk {

// Drivers of shared-memory devices take their rings down in EAL's interrupt thread when the other
// side goes, and nothing in them keeps a poller out of what is being unmapped. So every callback of
// that thread runs under this lock, and whoever calls into a driver holds it.
[[nodiscard]] std::mutex& driver_lock();

}  // namespace weft::srd::dpdk
