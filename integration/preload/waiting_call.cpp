// Owns letting go of what a thread held that was cancelled in its sleep.
#include "integration/preload/waiting_call.hpp"

#include <pthread.h>

namespace weft::preload {
namespace {

constinit pthread_key_t held{};
constinit bool is_made = false;
constinit pthread_once_t made = PTHREAD_ONCE_INIT;

}  // namespace

kernel::StreamEnds* note_held(kernel::StreamEnds* ends) {
  pthread_once(&made, [] {
    is_made = pthread_key_create(&held, [](void* value) {
                kernel::let_go(*static_cast<kernel::StreamEnds*>(value));
              }) == 0;
  });
  if (!is_made) {
    return nullptr;
  }
  void* const before = pthread_getspecific(held);
  pthread_setspecific(held, ends);
  return static_cast<kernel::StreamEnds*>(before);
}

}  // namespace weft::preload
