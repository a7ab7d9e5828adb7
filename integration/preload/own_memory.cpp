// Owns the note of the process that the memory belongs to. It is there from the start: a child of
// vfork() may be the first that asks.
#include "integration/preload/own_memory.hpp"

#include <linux/kcmp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <new>

#include "integration/preload/paths.hpp"

namespace weft::preload {
namespace {

constexpr std::size_t kPage = 4096;

// The note, where there is something to emulate. Zero: not written yet, in a child that was made
// past fork(), by clone() or _Fork(), for which the kernel has cleared the page.
constinit std::atomic<pid_t>* owner = nullptr;

// Whether our parent has the same memory, as it has if we are a child of vfork(), for which it
// waits. Where the kernel does not tell (a container without CAP_SYS_PTRACE, a kernel without
// kcmp()), it is taken for no: then a child of vfork() has to be the first that asks in a child of
// _Fork() to be mistaken.
bool is_parents_memory() {
  const int error = errno;
  const bool same = ::syscall(SYS_kcmp, ::getppid(), ::getpid(), KCMP_VM, 0, 0) == 0;
  errno = error;
  return same;
}

void note() { owner->store(getpid(), std::memory_order_relaxed); }

[[gnu::constructor]] void begin() {
  if (tree_root() == nullptr) {
    return;
  }
  void* const page =
      ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    return;
  }
  (void)::madvise(page, kPage, MADV_WIPEONFORK);
  owner = new (page) std::atomic<pid_t>(getpid());
  (void)pthread_atfork(nullptr, nullptr, note);
}

}  // namespace

bool is_own_memory() {
  if (owner == nullptr) {
    return true;
  }
  pid_t noted = owner->load(std::memory_order_relaxed);
  const pid_t here = getpid();
  if (noted != 0) {
    return noted == here;
  }
  return !is_parents_memory() &&
         (owner->compare_exchange_strong(noted, here, std::memory_order_relaxed) || noted == here);
}

bool is_memory_of(pid_t process) {
  return owner == nullptr || owner->load(std::memory_order_relaxed) == process;
}

}  // namespace weft::preload
