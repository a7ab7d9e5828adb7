// Owns an operator new that counts. It has a file of its own, so that no compiler sees through it.
#include <cstddef>
#include <cstdlib>
#include <new>

// Of the whole program so far; tests compare it before and after. For programs of one thread.
std::size_t allocations = 0;

void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) {
    return memory;
  }
  throw std::bad_alloc{};
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
