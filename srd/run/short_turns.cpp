// Owns the system calls for them.
#include "srd/run/short_turns.hpp"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace weft::srd {
namespace {

// The kernel's struct sched_attr, first version.
struct SchedulerAttributes {
  std::uint32_t size = sizeof(SchedulerAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;  // of ordinary threads: the length of a turn, in nanoseconds
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};
static_assert(sizeof(SchedulerAttributes) == 48);

constexpr std::uint64_t kTurn = 100'000;  // the shortest that it grants

}  // namespace

void ask_for_short_turns() {
  thread_local bool asked = false;
  if (asked) {
    return;
  }
  asked = true;
  SchedulerAttributes is;
  if (::syscall(SYS_sched_getattr, 0, &is, sizeof is, 0) == 0 && is.policy == SCHED_OTHER) {
    is.runtime = kTurn;
    (void)::syscall(SYS_sched_setattr, 0, &is, 0);
  }
}

void ask_for_punctual_timers() { (void)::prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0); }

}  // namespace weft::srd
