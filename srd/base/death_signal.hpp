// Owns ending a process together with the one that has started it.
#pragma once

#include <sys/prctl.h>
#include <unistd.h>

namespace weft {

// In the child, after fork(): it gets `signal` when the thread that called fork() ends, and it ends
// now if `parent`, which forked it, has ended already: then the kernel sends nothing any more.
inline void die_with(pid_t parent, int signal) {
  ::prctl(PR_SET_PDEATHSIG, signal);
  if (::getppid() != parent) {
    ::_exit(128 + signal);
  }
}

}  // namespace weft
