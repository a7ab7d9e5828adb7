// Owns the lock between DPDK's interrupt thread and the thread that polls.
#pragma once

#include <mutex>

namespace weft::srd::dpdk {

// memif unmaps its rings in EAL's interrupt thread when the other side leaves, and nothing in the
// driver keeps a polling thread out of them meanwhile. So its callbacks run under this lock, and
// the polling thread holds it around every burst.
[[nodiscard]] std::mutex& driver_lock();

}  // namespace weft::srd::dpdk
