// Owns finding the function that a wrapper of ours hides.
#pragma once

#include <dlfcn.h>

#include <atomic>

// Everything else in the library is hidden.
#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

namespace weft::preload {

// The next definition of a function after this library: libc's, or that of another interposer
// behind us. A constinit static of each wrapper: the first call looks it up, and calls that come
// meanwhile, in any thread or a child of vfork, find the same.
template <class Function>
class Next {
 public:
  // `otherwise` is for a libc that does not have the function yet.
  constexpr explicit Next(const char* name, Function* otherwise = nullptr)
      : name_(name), otherwise_(otherwise) {}
  [[nodiscard]] Function* get() {
    Function* const known = function_.load(std::memory_order_relaxed);
    return known != nullptr ? known : look_up();
  }
  template <class... Args>
  decltype(auto) operator()(Args... args) {
    return get()(args...);
  }

 private:
  [[gnu::noinline, gnu::cold]] Function* look_up() {
    auto* found = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name_));
    if (found == nullptr) {
      found = otherwise_;
    }
    function_.store(found, std::memory_order_relaxed);
    return found;
  }

  const char* name_;
  Function* otherwise_;
  std::atomic<Function*> function_{nullptr};
};

}  // namespace weft::preload
