// Owns finding the function that a wrapper of ours hides.
#pragma once

#include <dlfcn.h>

// Everything else in the library is hidden.
#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

namespace weft::preload {

// The next definition of `name` after this library: libc's, or that of another interposer behind
// us.
template <class Function>
[[nodiscard]] Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace weft::preload
