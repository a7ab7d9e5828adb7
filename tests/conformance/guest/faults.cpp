// Owns the cases about faults: those of buffers that are gone are the device's to survive, all
// others are the program's.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/guest/own_queue.hpp"

namespace weft::conformance {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 4;

// Registered pages, which the case takes away by one of the ways there are.
class Buffer {
 public:
  enum class Way : int { unmapped, guarded, unwritable, cut_off };

  explicit Buffer(QueuePair& queue) {
    file_ = memfd_create("guest", MFD_CLOEXEC);
    demand(file_ >= 0 && ftruncate(file_, kPages * kPage) == 0, "memfd");
    data_ = mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    demand(data_ != MAP_FAILED, "mmap");
    std::memset(data_, 7, kPages * kPage);
    const int access = IBV_ACCESS_LOCAL_WRITE;
    region_ = ibv_reg_mr(queue.domain(), data_, kPages * kPage, access);
    demand(region_ != nullptr, "reg_mr");
  }
  ~Buffer() {
    demand(ibv_dereg_mr(region_) == 0, "dereg_mr");
    munmap(data_, mapped_);
    close(file_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // All but the first page.
  void take_away(Way way) {
    char* const rest = static_cast<char*>(data_) + kPage;
    constexpr std::size_t kRest = (kPages - 1) * kPage;
    const int failed = way == Way::unmapped     ? munmap(rest, kRest)
                       : way == Way::guarded    ? mprotect(rest, kRest, PROT_NONE)
                       : way == Way::unwritable ? mprotect(rest, kRest, PROT_READ)
                                                : ftruncate(file_, kPage);
    demand(failed == 0, "cannot take the memory away");
    mapped_ = way == Way::unmapped ? kPage : mapped_;
  }
  [[nodiscard]] ibv_sge piece(std::size_t offset, std::uint32_t length) const {
    return {reinterpret_cast<std::uintptr_t>(data_) + offset, length, region_->lkey};
  }

 private:
  int file_ = -1;
  void* data_ = nullptr;
  std::size_t mapped_ = kPages * kPage;
  ibv_mr* region_ = nullptr;
};

// Takes `count` completions: how each number ended.
std::array<int, 16> ends(QueuePair& queue, int count) {
  std::array<int, 16> status{};
  status.fill(-1);
  ibv_wc done{};
  while (count > 0) {
    if (queue.poll(done)) {
      status.at(done.wr_id) = done.status;
      --count;
    }
  }
  return status;
}

// Memory goes while work that uses it is posted: this work ends with a local protection error, all
// other work ends well.
void lose(QueuePair& queue, Buffer::Way way) {
  Buffer buffer(queue);
  const bool source = way != Buffer::Way::unwritable;
  queue.post_receive(buffer.piece(2 * kPage - 20, 40), 1);
  queue.post_receive(buffer.piece(0, 64), 2);
  queue.post_receive(buffer.piece(0, 64), 3);
  buffer.take_away(way);
  // The first receive cannot be written any more: the message goes to the second.
  demand(queue.post_send(buffer.piece(64, 40), 4, queue.number()), "no room");
  demand(!source || queue.post_send(buffer.piece(kPage - 20, 40), 5, queue.number()), "no room");
  demand(queue.post_send(buffer.piece(64, 40), 6, queue.number()), "no room");
  const auto status = ends(queue, source ? 6 : 5);
  demand(status[1] == IBV_WC_LOC_PROT_ERR, "the receive into memory that is gone");
  demand(status[2] == IBV_WC_SUCCESS && status[3] == IBV_WC_SUCCESS, "the receives behind it");
  demand(!source || status[5] == IBV_WC_LOC_PROT_ERR, "the send from memory that is gone");
  demand(status[4] == IBV_WC_SUCCESS && status[6] == IBV_WC_SUCCESS, "the sends beside it");
}

volatile sig_atomic_t faults = 0;
volatile sig_atomic_t blocked_inside = 0;
void* volatile fault_address = nullptr;
sigjmp_buf after_fault;

void note_fault(int, siginfo_t* info, void*) {
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, nullptr, &now);
  blocked_inside =
      (sigismember(&now, SIGUSR1) != 0 ? 1 : 0) | (sigismember(&now, SIGSEGV) != 0 ? 2 : 0);
  faults = faults + 1;
  fault_address = info->si_addr;
  siglongjmp(after_fault, 1);
}

// False: a handler has thrown the store out.
bool stored(void* address) {
  if (sigsetjmp(after_fault, 1) == 0) {
    *static_cast<volatile char*>(address) = 1;
    return true;
  }
  return false;
}

// Whether a store there ended in the program's handler.
bool store_faults(void* address) {
  const int before = faults;
  return !stored(address) && faults == before + 1 && fault_address == address;
}

template <class Work>
int end_of_child(Work&& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  int status = 0;
  demand(waitpid(child, &status, 0) == child, "waitpid");
  return status;
}

bool killed_by(int status, int signal) { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }

}  // namespace

int gone_buffers() {
  QueuePair queue(16, kSize);
  for (const auto way : {Buffer::Way::unmapped, Buffer::Way::guarded, Buffer::Way::unwritable,
                         Buffer::Way::cut_off}) {
    lose(queue, way);
  }
  talk_to_itself(queue, 100);
  return 0;
}

int gone_everywhere() {
  const auto work = [] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    QueuePair queue(16, kSize);
    // Not unmapped: the other thread could be given these addresses, and be written to.
    for (int round = 0; round < 5; ++round) {
      pthread_sigmask(SIG_SETMASK, &all, nullptr);
      lose(queue, Buffer::Way::guarded);
      lose(queue, Buffer::Way::cut_off);
    }
  };
  std::thread first(work);
  std::thread second(work);
  first.join();
  second.join();
  // The program does not poll: it is the background thread that finds the memory gone.
  QueuePair queue(16, kSize);
  Buffer buffer(queue);
  queue.post_receive(buffer.piece(kPage, 64), 1);
  queue.post_receive(buffer.piece(0, 64), 2);
  buffer.take_away(Buffer::Way::unmapped);
  demand(queue.post_send(buffer.piece(0, 64), 3, queue.number()), "no room");
  std::this_thread::sleep_for(std::chrono::milliseconds{200});
  const auto status = ends(queue, 3);
  demand(status[1] == IBV_WC_LOC_PROT_ERR && status[2] == IBV_WC_SUCCESS, "in the background");
  return 0;
}

int own_faults() {
  void* const forbidden = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct sigaction own {};
  own.sa_sigaction = note_fault;
  own.sa_flags = SA_SIGINFO;
  sigaddset(&own.sa_mask, SIGUSR1);
  demand(sigaction(SIGSEGV, &own, nullptr) == 0, "sigaction");  // before the device is opened
  QueuePair queue(16, kSize);
  demand(store_faults(forbidden), "the handler that was there before");
  demand(blocked_inside == 3, "its mask");
  lose(queue, Buffer::Way::guarded);
  demand(faults == 1, "the program's handler was called for the device's fault");

  struct sigaction before {};
  own.sa_flags = SA_SIGINFO | SA_NODEFER;
  demand(sigaction(SIGSEGV, &own, &before) == 0 && before.sa_sigaction == note_fault, "the former");
  demand((before.sa_flags & (SA_SIGINFO | SA_NODEFER | SA_RESETHAND)) == SA_SIGINFO &&
             sigismember(&before.sa_mask, SIGUSR1) == 1,
         "what the former says");
  demand(store_faults(forbidden) && blocked_inside == 1, "SA_NODEFER");
  lose(queue, Buffer::Way::unmapped);

  // Sent by a process, it is the program's in any case.
  const int handled = faults;
  if (sigsetjmp(after_fault, 1) == 0) {
    raise(SIGSEGV);
    demand(false, "a signal that was sent");
  }
  demand(faults == handled + 1, "a signal that was sent");
  demand(signal(SIGBUS, SIG_IGN) != SIG_ERR && raise(SIGBUS) == 0, "ignored, if sent");

  own.sa_flags = SA_SIGINFO | SA_RESETHAND;
  demand(sigaction(SIGSEGV, &own, nullptr) == 0 && store_faults(forbidden), "once");
  demand(sigaction(SIGSEGV, nullptr, &before) == 0 && before.sa_handler == SIG_DFL, "and no more");
  lose(queue, Buffer::Way::cut_off);

  // On the stack that it asks for.
  static char stack[64 * 1024];
  const stack_t alternate{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  demand(sigaltstack(&alternate, nullptr) == 0, "sigaltstack");
  static volatile bool on_stack = false;
  own.sa_sigaction = [](int, siginfo_t*, void*) {
    const char here = 0;
    on_stack = &here >= stack && &here < stack + sizeof stack;
    siglongjmp(after_fault, 1);
  };
  for (const int flag : {SA_ONSTACK, 0}) {
    own.sa_flags = SA_SIGINFO | flag;
    demand(sigaction(SIGSEGV, &own, nullptr) == 0, "sigaction");
    demand(!stored(forbidden), "no fault");
    demand(on_stack == (flag != 0), "the stack of the handler");
    lose(queue, Buffer::Way::unmapped);
  }
  return 0;
}

int masked_faults() {
  static QueuePair* made_before = nullptr;
  struct sigaction wide {};
  sigfillset(&wide.sa_mask);
  wide.sa_handler = [](int) { lose(*made_before, Buffer::Way::unmapped); };
  demand(sigaction(SIGUSR1, &wide, nullptr) == 0, "sigaction");  // before the device is opened
  static QueuePair queue(16, kSize);
  made_before = &queue;
  lose(queue, Buffer::Way::unmapped);
  raise(SIGUSR1);
  demand(sigaction(SIGUSR2, &wide, nullptr) == 0, "sigaction");
  raise(SIGUSR2);

  // First of all below a handler, whose return restores the thread's own mask.
  std::thread([] {
    sigset_t most;
    sigfillset(&most);
    sigdelset(&most, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &most, nullptr);
    raise(SIGUSR1);
    lose(queue, Buffer::Way::unmapped);
  }).join();

  // The program's own handler leaves by a jump that restores no mask. That is a mask which the trap
  // of doorbells cannot work with.
  void* const forbidden = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  static jmp_buf plain;
  if (std::getenv("WEFT_DOORBELL_TRAP") == nullptr) {
    signal(SIGSEGV, [](int) { _longjmp(plain, 1); });
    if (_setjmp(plain) == 0) {
      *static_cast<volatile char*>(forbidden) = 1;
      demand(false, "no fault");
    }
    lose(queue, Buffer::Way::unmapped);
  }

  // The older family, which new programs are warned of.
  const auto old_set =
      reinterpret_cast<sighandler_t (*)(int, sighandler_t)>(dlsym(RTLD_DEFAULT, "sigset"));
  const auto old_hold = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "sighold"));
  const auto old_ignore = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "sigignore"));
  static volatile sig_atomic_t seen = 0;
  const auto own = [](int) {
    seen = seen + 1;
    siglongjmp(after_fault, 1);
  };
  demand(old_set(SIGSEGV, own) != SIG_ERR && old_set(SIGSEGV, SIG_HOLD) == own, "sigset()");
  lose(queue, Buffer::Way::unmapped);
  (void)stored(forbidden);
  demand(seen == 1, "the handler that sigset() has set");
  demand(old_hold(SIGSEGV) == 0, "sighold()");
  lose(queue, Buffer::Way::unmapped);
  demand(old_ignore(SIGSEGV) == 0 && raise(SIGSEGV) == 0, "sigignore()");
  lose(queue, Buffer::Way::unmapped);
  return 0;
}

int own_deaths() {
  void* const forbidden = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  QueuePair queue(16, kSize);
  talk_to_itself(queue);
  demand(killed_by(end_of_child([&] { *static_cast<volatile char*>(forbidden) = 1; }), SIGSEGV),
         "a fault");
  demand(killed_by(end_of_child([] { raise(SIGSEGV); }), SIGSEGV), "raise(SIGSEGV)");
  demand(killed_by(end_of_child([] { raise(SIGBUS); }), SIGBUS), "raise(SIGBUS)");
  demand(killed_by(end_of_child([] { kill(getpid(), SIGSEGV); }), SIGSEGV), "kill(SIGSEGV)");
  demand(killed_by(end_of_child([&] {
                     signal(SIGSEGV, SIG_IGN);
                     *static_cast<volatile char*>(forbidden) = 1;
                   }),
                   SIGSEGV),
         "a fault that is ignored");
  demand(end_of_child([] {
           signal(SIGSEGV, SIG_IGN);
           raise(SIGSEGV);
         }) == 0,
         "a signal that is ignored");
  demand(killed_by(end_of_child([&] {
                     struct sigaction once {};
                     once.sa_handler = [](int) {};
                     once.sa_flags = static_cast<int>(SA_RESETHAND);
                     sigaction(SIGSEGV, &once, nullptr);
                     *static_cast<volatile char*>(forbidden) = 1;
                   }),
                   SIGSEGV),
         "a handler that returns, once");
  talk_to_itself(queue);
  return 0;
}

namespace {

std::atomic<int> handled{0};
void handle(int) { ++handled; }

sighandler_t action_of(int number) {
  struct sigaction now {};
  return sigaction(number, nullptr, &now) == 0 ? now.sa_handler : SIG_ERR;
}

// `change` runs in a child that has its parent's memory, but actions of its own. Returns how that
// ends.
template <class Change>
int in_vfork_child(Change&& change) {
  const pid_t child = vfork();
  if (child == 0) {
    _exit(change() ? 0 : 1);
  }
  int status = 0;
  demand(waitpid(child, &status, 0) == child, "waitpid");
  return status;
}

}  // namespace

int vfork_actions() {
  const int device = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
  demand(device >= 0, "no device");
  for (const int number : {SIGSEGV, SIGBUS}) {
    demand(signal(number, handle) != SIG_ERR, "signal()");
    demand(in_vfork_child([&] {
             return action_of(number) == handle && signal(number, SIG_IGN) == handle &&
                    action_of(number) == SIG_IGN && signal(number, handle) == SIG_IGN &&
                    action_of(number) == handle && signal(number, SIG_DFL) == handle;
           }) == 0,
           "a child has other actions");
    demand(action_of(number) == handle, "a child changes its parent's action");
    const int killed = in_vfork_child(
        [&] { return signal(number, SIG_DFL) == handle && kill(getpid(), number) == 0; });
    demand(WIFSIGNALED(killed) && WTERMSIG(killed) == number, "a child survives");
    struct sigaction once {};
    once.sa_handler = handle;
    once.sa_flags = static_cast<int>(SA_RESETHAND);
    demand(sigaction(number, &once, nullptr) == 0, "sigaction()");
    handled = 0;
    demand(in_vfork_child([&] {
             return raise(number) == 0 && handled == 1 && action_of(number) == SIG_DFL;
           }) == 0,
           "once in a child");
    demand(action_of(number) == handle, "a child uses up its parent's action");
    demand(raise(number) == 0 && handled == 2 && action_of(number) == SIG_DFL, "once here");
  }
  return close(device);
}

}  // namespace weft::conformance
