// Owns the interposition of EAL's registry of interrupt callbacks: drivers find these functions
// first, because this module is loaded before EAL.
//
// A guarded callback is registered under a substitute, run<Index>, which takes the driver's lock
// and calls the original. EAL identifies callbacks by their address, so each entry of the registry
// needs a function of its own: hence the templates over the index.
#define ALLOW_EXPERIMENTAL_API  // one of the four functions is declared so
#include "srd/io/dpdk/interrupts.hpp"

#include <dlfcn.h>
#include <rte_interrupts.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string_view>
#include <utility>

namespace weft::srd::dpdk {
namespace {

// A driver's callback, for which the substitute of the same index is registered.
struct Registered {
  const rte_intr_handle* handle = nullptr;
  rte_intr_callback_fn run = nullptr;  // null: free
  void* argument = nullptr;
  rte_intr_unregister_callback_fn ended = nullptr;
  bool given_up = false;  // the driver failed to unregister it and may have freed its argument
};

constexpr std::size_t kCallbacks = 64;
constexpr std::size_t kNone = kCallbacks;

std::mutex registry_lock;
std::array<Registered, kCallbacks> registry;

Registered registered(std::size_t index) {
  const std::lock_guard guard(registry_lock);
  return registry[index];
}

thread_local bool in_callback = false;

// The registry is read after the lock has been taken: the thread that held it before may have
// closed the device, and given the callback up.
template <std::size_t Index>
void run(void* argument) {
  const std::lock_guard guard(driver_lock());
  const Registered callback = registered(Index);
  if (callback.run != nullptr && !callback.given_up) {
    in_callback = true;
    callback.run(argument);
    in_callback = false;
  }
}

template <std::size_t Index>
void end(rte_intr_handle* handle, void* argument) {
  const Registered callback = registered(Index);
  {
    const std::lock_guard guard(registry_lock);
    registry[Index] = {};
  }
  if (callback.ended != nullptr) {
    callback.ended(handle, argument);
  }
}

template <std::size_t... Index>
constexpr std::array<rte_intr_callback_fn, kCallbacks> runners(std::index_sequence<Index...>) {
  return {&run<Index>...};
}
template <std::size_t... Index>
constexpr std::array<rte_intr_unregister_callback_fn, kCallbacks> enders(
    std::index_sequence<Index...>) {
  return {&end<Index>...};
}
constexpr auto kRunners = runners(std::make_index_sequence<kCallbacks>{});
constexpr auto kEnders = enders(std::make_index_sequence<kCallbacks>{});

// An entry for the callback, or kNone if all are taken: it then runs without the lock.
std::size_t enter(const Registered& callback) {
  const std::lock_guard guard(registry_lock);
  for (std::size_t i = 0; i < kCallbacks; ++i) {
    if (registry[i].run == nullptr) {
      registry[i] = callback;
      return i;
    }
  }
  return kNone;
}

std::size_t find(const rte_intr_handle* handle, rte_intr_callback_fn run, const void* argument) {
  const std::lock_guard guard(registry_lock);
  const auto any = reinterpret_cast<const void*>(-1);  // as EAL has it
  for (std::size_t i = 0; i < kCallbacks; ++i) {
    if (registry[i].run == run && registry[i].handle == handle &&
        (argument == any || registry[i].argument == argument)) {
      return i;
    }
  }
  return kNone;
}

void leave(std::size_t index) {
  const std::lock_guard guard(registry_lock);
  registry[index] = {};
}

// EAL could not unregister the callback, because it runs in the interrupt thread, or waits there
// for the driver's lock, which the thread that closes the device holds. A driver that closes does
// not try again, and frees the argument; so the callback must not run any more.
void give_up(std::size_t index) {
  const std::lock_guard guard(registry_lock);
  registry[index].given_up = true;
}

// Only memif unmaps its rings in a callback. Other drivers wait, while they close, for a callback
// that runs: under the lock, that would be a deadlock.
bool is_guarded(rte_intr_callback_fn callback) {
  Dl_info module{};
  return callback != nullptr && ::dladdr(reinterpret_cast<void*>(callback), &module) != 0 &&
         module.dli_fname != nullptr &&
         std::string_view{module.dli_fname}.find("net_memif") != std::string_view::npos;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

std::mutex& driver_lock() {
  static std::mutex lock;
  return lock;
}

}  // namespace weft::srd::dpdk

using weft::srd::dpdk::enter;
using weft::srd::dpdk::find;
using weft::srd::dpdk::give_up;
using weft::srd::dpdk::is_guarded;
using weft::srd::dpdk::kEnders;
using weft::srd::dpdk::kNone;
using weft::srd::dpdk::kRunners;
using weft::srd::dpdk::leave;
using weft::srd::dpdk::next;

extern "C" {

__attribute__((visibility("default"))) int rte_intr_callback_register(const rte_intr_handle* handle,
                                                                      rte_intr_callback_fn callback,
                                                                      void* argument) {
  static auto* const real = next<decltype(rte_intr_callback_register)>(__func__);
  const std::size_t index =
      is_guarded(callback) ? enter({handle, callback, argument, nullptr}) : kNone;
  if (index == kNone) {
    return real(handle, callback, argument);
  }
  const int result = real(handle, kRunners[index], argument);
  if (result < 0) {
    leave(index);
  }
  return result;
}

__attribute__((visibility("default"))) int rte_intr_callback_unregister(
    const rte_intr_handle* handle, rte_intr_callback_fn callback, void* argument) {
  static auto* const real = next<decltype(rte_intr_callback_unregister)>(__func__);
  const std::size_t index = find(handle, callback, argument);
  if (index == kNone) {
    return real(handle, callback, argument);
  }
  const int result = real(handle, kRunners[index], argument);
  if (result > 0) {
    leave(index);
  } else if (result == -EAGAIN && !weft::srd::dpdk::in_callback) {
    give_up(index);
  }
  return result;
}

__attribute__((visibility("default"))) int rte_intr_callback_unregister_pending(
    const rte_intr_handle* handle, rte_intr_callback_fn callback, void* argument,
    rte_intr_unregister_callback_fn ended) {
  static auto* const real = next<decltype(rte_intr_callback_unregister_pending)>(__func__);
  const std::size_t index = find(handle, callback, argument);
  if (index == kNone) {
    return real(handle, callback, argument, ended);
  }
  {
    const std::lock_guard guard(weft::srd::dpdk::registry_lock);
    weft::srd::dpdk::registry[index].ended = ended;
  }
  return real(handle, kRunners[index], argument, kEnders[index]);
}

__attribute__((visibility("default"))) int rte_intr_callback_unregister_sync(
    const rte_intr_handle* handle, rte_intr_callback_fn callback, void* argument) {
  static auto* const real = next<decltype(rte_intr_callback_unregister_sync)>(__func__);
  const std::size_t index = find(handle, callback, argument);
  if (index == kNone) {
    return real(handle, callback, argument);
  }
  const int result = real(handle, kRunners[index], argument);
  leave(index);
  return result;
}

}  // extern "C"
