// Owns the point to which a thread returns when a buffer that it copies from or to is gone.
#include "integration/preload/fault_guard.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

// weft_guarded_call(work, argument, stack): saves the callee-saved registers on the stack, stores
// the stack pointer in *stack, calls work(argument), and returns 1. After a fault, the signal
// handler sets the stack pointer back to *stack and the instruction pointer to weft_guarded_fault,
// and the same call returns 0. Signal mask and vector registers are restored by the kernel when the
// handler returns. So unlike sigsetjmp() this costs no system call, and few instructions, when
// there is no fault.
extern "C" {
[[gnu::visibility("hidden")]] int weft_guarded_call(void (*work)(void*), void* argument,
                                                    std::uintptr_t* stack);
[[gnu::visibility("hidden")]] extern const char weft_guarded_fault[];
}

asm(R"(
  .text
  .p2align 4
  .globl weft_guarded_call
  .hidden weft_guarded_call
  .type weft_guarded_call, @function
  .globl weft_guarded_fault
  .hidden weft_guarded_fault
weft_guarded_call:
  .cfi_startproc
  push %rbp
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rbp, 0
  push %rbx
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rbx, 0
  push %r12
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r12, 0
  push %r13
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r13, 0
  push %r14
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r14, 0
  push %r15
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r15, 0
  sub $8, %rsp
  .cfi_adjust_cfa_offset 8
  mov %rsp, (%rdx)
  mov %rdi, %rax
  mov %rsi, %rdi
  call *%rax
  mov $1, %eax
.Lweft_guarded_leave:
  .cfi_remember_state
  add $8, %rsp
  .cfi_adjust_cfa_offset -8
  pop %r15
  .cfi_adjust_cfa_offset -8
  .cfi_restore %r15
  pop %r14
  .cfi_adjust_cfa_offset -8
  .cfi_restore %r14
  pop %r13
  .cfi_adjust_cfa_offset -8
  .cfi_restore %r13
  pop %r12
  .cfi_adjust_cfa_offset -8
  .cfi_restore %r12
  pop %rbx
  .cfi_adjust_cfa_offset -8
  .cfi_restore %rbx
  pop %rbp
  .cfi_adjust_cfa_offset -8
  .cfi_restore %rbp
  ret
weft_guarded_fault:
  .cfi_restore_state
  xor %eax, %eax
  jmp .Lweft_guarded_leave
  .cfi_endproc
  .size weft_guarded_call, . - weft_guarded_call
)");

namespace weft::preload {
namespace {

// A guarded touch under way in this thread: its range, and where to return to. Touches may nest.
struct Touch {
  std::uintptr_t begin = 0;
  std::size_t length = 0;
  std::uintptr_t stack = 0;  // of weft_guarded_call
  const Touch* outer = nullptr;
};
constinit thread_local const Touch* innermost = nullptr;

// Whether the fault came by an address of that range. It may go past the last address and on from
// the first one. Of an address that no page can have the kernel does not tell which one it was.
bool is_in(const Touch& touch, const siginfo_t& info) {
  constexpr unsigned kAddressBits = 47;
  const auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
  const bool has_untold =
      touch.begin >> kAddressBits != 0 || (touch.begin + touch.length) >> kAddressBits != 0;
  return address - touch.begin < touch.length || (info.si_code == SI_KERNEL && has_untold);
}

// How far below the guarded call the stack pointer may be for a fault to count as ours. The work is
// a copy, which needs little stack. A signal handler of the program that interrupts it, and touches
// the same buffer, has a signal frame in between and is further down: its faults are the program's
// own.
constexpr std::uintptr_t kMaxBelow = 2048;

// The kernel ends a process that faults while the signal is blocked, and some threads block all
// signals. So each thread unblocks SIGSEGV and SIGBUS before its first touch, and again after a
// handler of the program's for one of them ran. The wrappers in fault_signals.cpp keep other
// changes of the mask from blocking them.
constinit thread_local bool faults_are_let_in = false;

[[gnu::noinline, gnu::cold]] void let_faults_in() {
  constexpr std::uint64_t kFaults = std::uint64_t{1} << (SIGSEGV - 1) | std::uint64_t{1}
                                                                            << (SIGBUS - 1);
  faults_are_let_in = true;
  (void)syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &kFaults, nullptr, sizeof kFaults);
}

}  // namespace

bool guarded_touch(void (*work)(void*), void* argument, const void* begin, std::size_t length) {
  if (!faults_are_let_in) [[unlikely]] {
    let_faults_in();
  }
  Touch here{reinterpret_cast<std::uintptr_t>(begin), length, 0, innermost};
  innermost = &here;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const bool whole = weft_guarded_call(work, argument, &here.stack) != 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  innermost = here.outer;
  return whole;
}

void signal_mask_changed() { faults_are_let_in = false; }

bool leave_guarded_touch(const siginfo_t& info, ucontext_t& context) {
  const Touch* const touch = innermost;
  if (touch == nullptr) {
    return false;
  }
  constexpr greg_t kDirection = 0x400;  // copies expect it to be clear
  auto& registers = context.uc_mcontext.gregs;
  const std::uintptr_t below = touch->stack - static_cast<std::uintptr_t>(registers[REG_RSP]);
  if (!is_in(*touch, info) || below > kMaxBelow) {
    return false;
  }
  registers[REG_RSP] = static_cast<greg_t>(touch->stack);
  registers[REG_RIP] = reinterpret_cast<greg_t>(weft_guarded_fault);
  registers[REG_EFL] &= ~kDirection;
  return true;
}

}  // namespace weft::preload
