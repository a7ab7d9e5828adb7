// Owns the affinities of processes.
#include "emu/launch/cores.hpp"

#include <sched.h>

namespace weft::launch {
namespace {

// `chosen` becomes the n-th core, `others` the rest. False: there is no choice.
bool split_cores(std::size_t number, cpu_set_t& chosen, cpu_set_t& others) {
  if (::sched_getaffinity(0, sizeof others, &others) != 0 || CPU_COUNT(&others) < 2) {
    return false;
  }
  CPU_ZERO(&chosen);
  std::size_t left = number;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &others) && left-- == 0) {
      CPU_SET(core, &chosen);
      CPU_CLR(core, &others);
      return true;
    }
  }
  return false;
}

}  // namespace

std::size_t core_count() {
  cpu_set_t allowed;
  return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0
             ? static_cast<std::size_t>(CPU_COUNT(&allowed))
             : 1;
}

void pin_to_core(pid_t process, std::size_t number) {
  cpu_set_t chosen;
  cpu_set_t others;
  if (split_cores(number, chosen, others)) {
    ::sched_setaffinity(process, sizeof chosen, &chosen);
  }
}

void keep_off_core(pid_t process, std::size_t number) {
  cpu_set_t chosen;
  cpu_set_t others;
  if (split_cores(number, chosen, others)) {
    ::sched_setaffinity(process, sizeof others, &others);
  }
}

bool passes_weftd(bool asked_for, const std::string& topology,
                  const std::vector<std::string>& faults) {
  return asked_for || !topology.empty() || !faults.empty();
}

}  // namespace weft::launch
