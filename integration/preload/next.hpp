// Owns the form of the table of the functions that our wrappers hide.
#pragma once

#include <atomic>
#include <cerrno>
#include <type_traits>

// Everything else in the library is hidden.
#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

// Declares `variable`, a Next of that type of function, and enters it into the table: a section of
// pointers that the linker collects from all files. Further arguments are those of Next.
#define WEFT_NEXT(type, variable, ...)                                \
  static constinit ::weft::preload::Next<type> variable(__VA_ARGS__); \
  [[gnu::section("weft_next"),                                        \
    gnu::used]] static ::weft::preload::NextEntry* const variable##_entry = &(variable)

namespace weft::preload {

// An entry of the table, whatever the function's type.
class NextEntry {
 public:
  // Asks the loader.
  void look_up();

 protected:
  using Keep = void(NextEntry& self, void* found);
  constexpr NextEntry(const char* name, Keep* keep) : name_(name), keep_(keep) {}

 private:
  const char* name_;
  Keep* keep_;
};

// Looks up that entry, and then all others, unless that has been done or is being done. Runs when
// the library is loaded, or earlier if the constructor of another library calls a wrapper.
void look_up_all(NextEntry& first);

// Stands for a function that libc does not have any more.
template <class Function>
struct Absent;
template <class Result, class... Args>
struct Absent<Result(Args...)> {
  static Result call(Args... /*arguments*/) {
    errno = ENOSYS;
    if constexpr (std::is_pointer_v<Result>) {
      return nullptr;
    } else if constexpr (!std::is_void_v<Result>) {
      return static_cast<Result>(-1);
    }
  }
};
template <class Result, class... Args>
struct Absent<Result(Args..., ...)> {
  static Result call(Args... /*arguments*/, ...) {
    errno = ENOSYS;
    return static_cast<Result>(-1);
  }
};

// The next definition of a function after this library: libc's, or that of another interposer
// behind us. No call asks the loader once the library is loaded: that takes the loader's lock,
// under which another thread may run a library's constructor that waits for this one.
template <class Function>
class Next : public NextEntry {
 public:
  // `otherwise` is for a libc that does not have the function.
  constexpr explicit Next(const char* name, Function* otherwise = Absent<Function>::call)
      : NextEntry(name, keep), otherwise_(otherwise) {}
  [[nodiscard]] Function* get() {
    if (Function* const known = function_.load(std::memory_order_relaxed)) [[likely]] {
      return known;
    }
    look_up_all(*this);
    return function_.load(std::memory_order_relaxed);
  }
  template <class... Args>
  decltype(auto) operator()(Args... args) {
    return get()(args...);
  }

 private:
  static void keep(NextEntry& entry, void* found) {
    auto& self = static_cast<Next&>(entry);
    self.function_.store(found != nullptr ? reinterpret_cast<Function*>(found) : self.otherwise_,
                         std::memory_order_relaxed);
  }

  Function* otherwise_;
  std::atomic<Function*> function_{nullptr};
};

}  // namespace weft::preload
