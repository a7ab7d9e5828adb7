// Owns decoding the store that faulted, and finding the doorbell that it was meant for.
//
// The course of a trap: SIGSEGV arrives with the faulting address; take() finds the entry of that
// page; decode() reads the instruction, its length and the value that it stores; the value is
// stored through a second, writable mapping of the same page; the instruction pointer moves behind
// the instruction; push_unpolled() lets the device send. An instruction that cannot be decoded ends
// the trap for its page.
#include "integration/preload/doorbell_trap.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include "srd/run/short_turns.hpp"

namespace weft::preload {
namespace {

constexpr std::uintptr_t kPage = 4096;
constexpr int kMaxTries = 1000;

#if defined(__x86_64__)

struct Store {
  std::size_t length = 0;  // of the instruction; 0: not one of those that ring doorbells
  std::uint32_t value = 0;
};

std::uint32_t register_value(const ucontext_t& context, unsigned number) {
  constexpr int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<std::uint32_t>(context.uc_mcontext.gregs[kOrder[number]]);
}

// The length of a memory operand in bytes: ModRM, SIB, displacement. 0: the operand is a register.
std::size_t operand_length(const std::uint8_t* at) {
  const unsigned mode = at[0] >> 6;
  const unsigned base = at[0] & 7U;
  if (mode == 3) {
    return 0;
  }
  std::size_t length = 1;
  bool wide = mode == 2 || (mode == 0 && base == 5);
  if (base == 4) {
    wide = wide || (mode == 0 && (at[1] & 7U) == 5);
    ++length;
  }
  return length + (wide ? 4U : mode == 1 ? 1U : 0U);
}

// Knows the three stores that compilers make of a write to a doorbell: mov %r32,mem; mov
// $imm32,mem; xchg %r32,mem, whose result, the doorbell's old value, is not used.
Store decode(const ucontext_t& context) {
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(
      static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RIP]));
  const std::uint8_t* at = begin;
  unsigned high = 0;
  if ((*at & 0xF0U) == 0x40) {  // REX
    if ((*at & 0x08U) != 0) {   // 64 bits
      return {};
    }
    high = (*at & 0x04U) != 0 ? 8 : 0;
    ++at;
  }
  const std::uint8_t operation = *at++;
  const std::size_t operand = operand_length(at);
  if (operand == 0) {
    return {};
  }
  const unsigned number = (*at >> 3) & 7U;
  at += operand;
  if (operation == 0x89 || operation == 0x87) {
    return {static_cast<std::size_t>(at - begin), register_value(context, number + high)};
  }
  if (operation == 0xC7 && number == 0) {
    std::uint32_t value = 0;
    std::memcpy(&value, at, sizeof value);
    return {static_cast<std::size_t>(at - begin) + sizeof value, value};
  }
  return {};
}

// The program goes on behind the instruction.
void skip(ucontext_t& context, std::size_t length) {
  context.uc_mcontext.gregs[REG_RIP] += static_cast<greg_t>(length);
}

constexpr bool kCanDecode = true;

#else

struct Store {
  std::size_t length = 0;
  std::uint32_t value = 0;
};
Store decode(const ucontext_t&) { return {}; }
void skip(ucontext_t&, std::size_t) {}
constexpr bool kCanDecode = false;

#endif

struct Mapping {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::uint64_t offset = 0;
  unsigned long inode = 0;
};

// Not from a signal handler: it allocates.
template <class F>
void for_each_mapping(F&& f) {
  std::FILE* const file = std::fopen("/proc/self/maps", "re");
  if (file == nullptr) {
    return;
  }
  char line[512];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    Mapping one;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64 " %*s %lu", &one.begin, &one.end,
                    &one.offset, &one.inode) == 4) {
      f(one);
    }
  }
  std::fclose(file);
}

}  // namespace

bool DoorbellTrap::wanted() {
  // Read once: the program may change or clear its environment.
  enum class Answer : std::uint8_t { unknown, no, yes };
  static constinit std::atomic<Answer> answer{Answer::unknown};
  if (answer.load(std::memory_order_relaxed) == Answer::unknown) {
    const char* const text = std::getenv("WEFT_DOORBELL_TRAP");
    const bool asked = kCanDecode && text != nullptr && std::strcmp(text, "1") == 0;
    answer.store(asked ? Answer::yes : Answer::no, std::memory_order_relaxed);
  }
  return answer.load(std::memory_order_relaxed) == Answer::yes;
}

DoorbellTrap& DoorbellTrap::instance() {
  static constinit DoorbellTrap trap;
  static_assert(std::is_trivially_destructible_v<DoorbellTrap>);
  return trap;
}

DoorbellTrap::Entry* DoorbellTrap::find(std::uintptr_t page) {
  for (Entry& entry : entries_) {
    if (entry.page.load(std::memory_order_acquire) == page) {
      return &entry;
    }
  }
  return nullptr;
}

// Whether that page is the second mapping of an entry, not one of the application's.
bool DoorbellTrap::is_own(std::uintptr_t page) const {
  return std::any_of(entries_.begin(), entries_.end(), [page](const Entry& entry) {
    return reinterpret_cast<std::uintptr_t>(entry.own) == page;
  });
}

// Makes the page writable again, but only if it is still the same page of the same file: the
// application may have unmapped it, and mapped something else there.
void DoorbellTrap::release(Entry& entry) {
  const std::uintptr_t page = entry.page.exchange(0, std::memory_order_seq_cst);
  for_each_mapping([&](const Mapping& one) {
    const bool there = one.begin <= page && page < one.end;
    if (there && one.inode == entry.inode && one.offset + (page - one.begin) == entry.key) {
      ::mprotect(reinterpret_cast<void*>(page), kPage, PROT_READ | PROT_WRITE);
    }
  });
  std::byte* const own = std::exchange(entry.own, nullptr);
  // A thread in the handler may have found the entry before it was cleared: wait until no thread is
  // in the handler. If one stays there for too long, the mapping is leaked.
  for (int tries = 0; handling_.load(std::memory_order_seq_cst) != 0; ++tries) {
    if (tries == kMaxTries) {
      return;
    }
    srd::give_way();
  }
  ::munmap(own, kPage);
}

void DoorbellTrap::forget(int fd) {
  for (Entry& entry : entries_) {
    if (entry.page.load(std::memory_order_relaxed) != 0 && (fd == -1 || entry.fd == fd)) {
      release(entry);
    }
  }
}

void DoorbellTrap::forget(int fd, std::uint64_t key) {
  for (Entry& entry : entries_) {
    if (entry.page.load(std::memory_order_relaxed) != 0 && entry.fd == fd && entry.key == key) {
      release(entry);
    }
  }
}

// Runs in a signal handler, in any thread, without a lock; `handling_` keeps release() from
// unmapping what it uses.
bool DoorbellTrap::take(const siginfo_t& info, ucontext_t& context) {
  if (!in_use()) {
    return false;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
  const std::uintptr_t page = address & ~(kPage - 1);
  handling_.fetch_add(1, std::memory_order_seq_cst);
  Entry* const entry = page == 0 ? nullptr : find(page);
  if (entry == nullptr) {
    handling_.fetch_sub(1, std::memory_order_release);
    return false;
  }
  const int saved = errno;
  const Store store = decode(context);
  if (store.length == 0) {
    // An unknown instruction: let it through. From now on this doorbell is only found by the
    // background thread, which looks now and then.
    entry->page.store(0, std::memory_order_release);
    ::mprotect(reinterpret_cast<void*>(page), kPage, PROT_READ | PROT_WRITE);
  } else {
    auto& word = *reinterpret_cast<std::uint32_t*>(entry->own + (address - page));
    std::atomic_ref(word).store(store.value, std::memory_order_release);
    skip(context, store.length);
    entry->runner->push_unpolled();
  }
  handling_.fetch_sub(1, std::memory_order_release);
  errno = saved;
  return true;
}

// The application's mapping is found by the file's inode and the offset. Its library may not have
// mapped the doorbell yet: then the next change of the queue pair leads here again.
void DoorbellTrap::watch(int fd, const kernel::QueueRegion& doorbell, kernel::Runner& runner) {
  if (doorbell.data == nullptr) {
    return;
  }
  in_use_.store(true, std::memory_order_release);
  const auto device = reinterpret_cast<std::uintptr_t>(doorbell.data);  // the device's own view
  unsigned long inode = 0;
  for_each_mapping([&](const Mapping& one) {
    if (one.begin <= device && device < one.end) {
      inode = one.inode;
    }
  });
  std::uintptr_t found = 0;
  for_each_mapping([&](const Mapping& one) {
    const bool inside =
        one.offset <= doorbell.key && doorbell.key < one.offset + (one.end - one.begin);
    const std::uintptr_t page = one.begin + (doorbell.key - one.offset);
    if (inode != 0 && one.inode == inode && inside && page != device && !is_own(page)) {
      found = page;
    }
  });
  if (found == 0) {
    return;
  }
  Entry* entry = find(found);
  if (entry != nullptr && entry->fd == fd && entry->key == doorbell.key) {
    return;  // every change of the queue pair's state leads here
  }
  if (entry != nullptr) {  // of a queue pair that is gone, at the same place
    release(*entry);
  } else if (entry = find(0); entry == nullptr) {
    return;
  }
  void* const own = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                           static_cast<off_t>(doorbell.key));
  if (own == MAP_FAILED) {
    return;
  }
  entry->own = static_cast<std::byte*>(own);
  entry->fd = fd;
  entry->key = doorbell.key;
  entry->inode = inode;
  entry->runner = &runner;
  entry->page.store(found, std::memory_order_release);
  ::mprotect(reinterpret_cast<void*>(found), kPage, PROT_READ);
}

}  // namespace weft::preload
