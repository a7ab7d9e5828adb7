// Owns the cases about libraries that come and go: their constructors and destructors run under the
// loader's lock, and may wait for threads that use the device or call what is wrapped.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/guest/own_queue.hpp"

namespace weft::conformance {
namespace {

constexpr const char kNowhere[] = "/nowhere/at/all";

// Calls that a program makes late or never, for the first time in this process.
void (*const kFirstCalls[])() = {
    [] { (void)!pwritev2(-1, nullptr, 0, 0, 0); },
    [] { (void)inotify_add_watch(-1, kNowhere, IN_OPEN); },
    [] {
      (void)ftw(
          kNowhere, [](const char*, const struct stat*, int) { return 0; }, 1);
    },
    [] {
      (void)nftw(
          kNowhere, [](const char*, const struct stat*, int, FTW*) { return 0; }, 1, 0);
    },
    [] { (void)!freopen(kNowhere, "r", stdin); },
    [] {
      dirent** list = nullptr;
      (void)scandirat(AT_FDCWD, kNowhere, &list, nullptr, nullptr);
    },
    [] { (void)lgetxattr(kNowhere, "user.none", nullptr, 0); },
    [] {
      struct statvfs status {};
      (void)statvfs(kNowhere, &status);
    },
    [] {
      glob_t found{};
      if (glob(kNowhere, 0, nullptr, &found) == 0) {
        globfree(&found);
      }
    },
    [] { (void)ssignal(SIGUSR2, SIG_IGN); },
    [] { free(canonicalize_file_name(kNowhere)); },
    [] { (void)dup3(-1, -1, 0); },
    [] { (void)!creat(kNowhere, 0600); },
    [] { (void)!chdir(kNowhere); },
};

// What the module's constructor and destructor do; nothing in between.
void (*at_change)() = nullptr;

// Runs `work` in a thread of its own, as the constructor of a library may. A thread that waited for
// the loader's lock would never come to its end: the test's limit ends the process, and this line
// is the last one.
template <class Work>
void wait_for_thread(Work&& work, const char* what) {
  std::fprintf(stderr, "in a constructor: waiting for a thread that %s\n", what);
  std::thread(std::forward<Work>(work)).join();
}

void load_and_unload() {
  void* const module = dlopen(WEFT_GUEST_MODULE, RTLD_NOW | RTLD_LOCAL);
  demand(module != nullptr, "cannot load the module");
  dlclose(module);
}

}  // namespace

int first_calls_while_loading() {
  at_change = [] {
    static std::size_t next = 0;
    while (next < std::size(kFirstCalls)) {
      wait_for_thread(kFirstCalls[next++], "makes a first call");
      if (next == std::size(kFirstCalls) / 2) {
        return;  // the others in the destructor
      }
    }
  };
  load_and_unload();
  at_change = nullptr;
  return 0;
}

int verbs_while_loading() {
  static QueuePair* const first = new QueuePair(kSlots, kSize);
  at_change = [] {
    wait_for_thread(
        [] {
          QueuePair queue(kSlots, kSize);
          talk_to_itself(queue);
          talk_to_itself(*first);
        },
        "makes a queue pair");
  };
  load_and_unload();
  at_change = nullptr;
  return 0;
}

// All of it at once: threads that open, make and close while libraries with such constructors come
// and go.
int libraries_that_come_and_go() {
  constexpr int kRounds = 50;
  static QueuePair* const first = new QueuePair(kSlots, kSize);
  static std::atomic<int> turns{0};
  static std::atomic<bool> stop{false};
  at_change = [] {
    wait_for_thread(
        [before = turns.load()] {
          while (turns.load() < before + 2) {
            std::this_thread::yield();
          }
        },
        "waits for others");
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([] {
      while (!stop) {
        const int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
        demand(fd >= 0 && close(fd) == 0, "cannot open and close the device");
        ibv_comp_channel* const channel = ibv_create_comp_channel(first->context());
        ibv_cq* const cq = ibv_create_cq(first->context(), 4, nullptr, channel, 0);
        demand(cq != nullptr && ibv_destroy_cq(cq) == 0, "cannot make a completion queue");
        demand(ibv_destroy_comp_channel(channel) == 0, "cannot destroy a channel");
        ++turns;
      }
    });
  }
  for (int i = 0; i < kRounds; ++i) {
    load_and_unload();
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  at_change = nullptr;
  talk_to_itself(*first);
  return 0;
}

}  // namespace weft::conformance

namespace {
void change() {
  if (weft::conformance::at_change != nullptr) {
    weft::conformance::at_change();
  }
}
}  // namespace

extern "C" {
[[gnu::visibility("default")]] void weft_guest_module_begins() { change(); }
[[gnu::visibility("default")]] void weft_guest_module_ends() { change(); }
}
