// Owns taking the locks of the control path where the caller may be a signal handler.
#pragma once

#include <mutex>

#include "srd/run/try_lock.hpp"

namespace weft::preload {

// False: this thread holds the lock already, and a signal handler that interrupted it now calls
// exit(), fork() or close(). What the lock protects may be half changed: the caller must do
// without.
class Guard {
 public:
  explicit Guard(srd::TryLock& lock) : lock_(lock.held_here() ? nullptr : &lock) {
    if (lock_ != nullptr) {
      lock_->lock();
    }
  }
  // The caller has taken it.
  Guard(srd::TryLock& lock, std::adopt_lock_t /*taken*/) : lock_(&lock) {}
  ~Guard() {
    if (lock_ != nullptr) {
      lock_->unlock();
    }
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  [[nodiscard]] explicit operator bool() const { return lock_ != nullptr; }

 private:
  srd::TryLock* lock_;
};

}  // namespace weft::preload
