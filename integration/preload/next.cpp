// Owns filling the table of stock functions.
#include "integration/preload/next.hpp"

#include <dlfcn.h>

// Made by the linker: where the section begins and ends.
extern "C" {
[[gnu::visibility("hidden")]] extern weft::preload::NextEntry* const __start_weft_next[];
[[gnu::visibility("hidden")]] extern weft::preload::NextEntry* const __stop_weft_next[];
}

namespace weft::preload {

void NextEntry::look_up() { keep_(*this, dlsym(RTLD_NEXT, name_)); }

// When dlsym() finds nothing, the loader allocates memory, and a malloc() of the program's may call
// a wrapper, which comes here again. Then only the entry that is asked for is looked up.
[[gnu::cold]] void look_up_all(NextEntry& first) {
  static constinit std::atomic<bool> begun{false};
  first.look_up();
  if (begun.exchange(true, std::memory_order_relaxed)) {
    return;
  }
  for (NextEntry* const* entry = __start_weft_next; entry != __stop_weft_next; ++entry) {
    (*entry)->look_up();
  }
}

namespace {
[[gnu::constructor(101)]] void fill() { look_up_all(**__start_weft_next); }
}  // namespace

}  // namespace weft::preload
