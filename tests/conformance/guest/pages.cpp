// Owns the cases about the application's pages: which code may change them, and which handler a
// fault reaches.
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/guest/own_queue.hpp"

namespace weft::conformance {
namespace {

constexpr std::size_t kPage = 4096;

// "rw-p" and so on, of the mapping that `address` lies in.
std::string rights_of(std::uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    char rights[8] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %7s", &begin, &end, rights) == 3 && begin <= address &&
        address < end) {
      return rights;
    }
  }
  return "";
}

// Of the application's mappings the completion queue is read-only, and the doorbell that is
// watched: one page.
std::uintptr_t watched_page() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    const bool device = line.find("weft-uverbs") != std::string::npos;
    if (device && line.find(" r--s ") != std::string::npos &&
        std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2 && end - begin == kPage &&
        rights_of(begin) == "r--s") {
      return begin;
    }
  }
  return 0;
}

sigjmp_buf after_fault;
volatile sig_atomic_t faults = 0;

}  // namespace

int trap_forgets() {
  ibv_context* const keeps_the_file = open_first_device();
  auto queue = std::make_unique<QueuePair>(256, kSize);  // a completion queue of several pages
  const std::uintptr_t page = watched_page();
  demand(page != 0, "no doorbell is watched");
  talk_to_itself(*queue);
  queue->destroy_queue_pair();
  // The page belongs to another mapping now.
  void* const mine = mmap(reinterpret_cast<void*>(page), kPage, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  demand(mine == reinterpret_cast<void*>(page), "mmap");
  queue.reset();
  demand(rights_of(page) == "---p", "another page's rights were changed");
  for (int i = 0; i < 3; ++i) {
    QueuePair another(kSlots, kSize);
    talk_to_itself(another);
  }
  demand(rights_of(page) == "---p", "another page's rights were changed later");
  return ibv_close_device(keeps_the_file);
}

int trap_with_handler() {
  QueuePair queue(kSlots, kSize);
  demand(watched_page() != 0, "no doorbell is watched");
  struct sigaction own {};
  own.sa_sigaction = [](int, siginfo_t*, void*) {
    faults = faults + 1;
    siglongjmp(after_fault, 1);
  };
  own.sa_flags = SA_SIGINFO;
  demand(sigaction(SIGSEGV, &own, nullptr) == 0, "sigaction");
  for (int i = 0; i < 10; ++i) {
    talk_to_itself(queue);  // none of these stores may get to that handler
  }
  demand(faults == 0, "the program's handler was called for a doorbell");
  struct sigaction now {};
  demand(sigaction(SIGSEGV, nullptr, &now) == 0 && now.sa_sigaction == own.sa_sigaction,
         "the program's handler is not the one it has set");
  void* const forbidden = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (sigsetjmp(after_fault, 1) == 0) {
    *static_cast<volatile char*>(forbidden) = 1;
    demand(false, "a store into nothing");
  }
  demand(faults == 1, "the program's handler was not called");
  talk_to_itself(queue);
  return 0;
}

int hooked_memory() {
  (void)dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL);  // the other one is nothing without it
  void* const ucm = dlopen("libucm.so.0", RTLD_NOW | RTLD_GLOBAL);
  if (ucm == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 77;
  }
  using Callback = void(int, void*, void*);
  const auto set =
      reinterpret_cast<int (*)(int, int, Callback*, void*)>(dlsym(ucm, "ucm_set_event_handler"));
  demand(set != nullptr, "libucm without ucm_set_event_handler");
  constexpr int kMapped = 1 << 16;    // UCM_EVENT_VM_MAPPED
  constexpr int kUnmapped = 1 << 17;  // UCM_EVENT_VM_UNMAPPED
  static std::atomic<int> events{0};
  demand(set(
             kMapped | kUnmapped, 1000, [](int, void*, void*) { ++events; }, nullptr) == 0,
         "the hooks cannot be set");
  for (int i = 0; i < 3; ++i) {
    QueuePair queue(kSlots, kSize);
    talk_to_itself(queue);
  }
  constexpr std::size_t kBig = 16U << 20;
  void* const memory =
      mmap(nullptr, kBig, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  demand(memory != MAP_FAILED && munmap(memory, kBig) == 0, "mmap");
  demand(events > 0, "the hooks see nothing");
  return 0;
}

}  // namespace weft::conformance
