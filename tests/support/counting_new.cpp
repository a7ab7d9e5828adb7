// Owns an operator new that counts. It has a file of its own, so that no compiler sees through it.
#include <malloc.h>

#include <cstddef>
#include <cstdlib>
#include <new>

// Of the whole program so far; tests compare it before and after. For programs of one thread.
std::size_t allocations = 0;
// Bytes that are in use, with what the allocator rounds up.
std::size_t allocated_bytes = 0;

namespace {

void* counted(void* memory) {
  if (memory == nullptr) {
    throw std::bad_alloc{};
  }
  ++allocations;
  allocated_bytes += ::malloc_usable_size(memory);
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return counted(std::malloc(size)); }
// What is aligned more than usual: records that fill cache lines.
void* operator new(std::size_t size, std::align_val_t alignment) {
  void* memory = nullptr;
  return counted(
      ::posix_memalign(&memory, static_cast<std::size_t>(alignment), size) == 0 ? memory : nullptr);
}
void operator delete(void* memory) noexcept {
  allocated_bytes -= ::malloc_usable_size(memory);  // 0 of nothing
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { operator delete(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  operator delete(memory);
}
