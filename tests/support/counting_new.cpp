// Owns an operator new that counts. It has a file of its own, so that no compiler sees through it.
#include <malloc.h>

#include <cstddef>
#include <cstdlib>
#include <new>

// Of the whole program so far; tests compare it before and after. For programs of one thread.
std::size_t allocations = 0;
// Bytes that are in use, with what the allocator rounds up.
std::size_t allocated_bytes = 0;

void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) {
    allocated_bytes += ::malloc_usable_size(memory);
    return memory;
  }
  throw std::bad_alloc{};
}
void operator delete(void* memory) noexcept {
  allocated_bytes -= ::malloc_usable_size(memory);  // 0 of nothing
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
