// Owns the wish that the heap of a large simulation lie in huge pages.
#pragma once

#include <cstddef>

namespace weft::cli {

// The next `bytes` that this process allocates lie side by side, in huge pages where the kernel
// gives them on request: a simulation of thousands of hosts otherwise spends a third of its time
// on translating addresses. A hint; nothing is taken before it is used.
void expect_large_heap(std::size_t bytes);

}  // namespace weft::cli
