// Owns the cases about threads and processes that begin and end at bad moments.
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/guest/full_process.hpp"
#include "tests/conformance/guest/own_queue.hpp"
#include "tests/conformance/guest/ranks.hpp"

namespace weft::conformance {
namespace {

// What a library's destructor may do to a device that was in use when the program ended.
struct ClosesAtExit {
  ibv_context* context = nullptr;
  ~ClosesAtExit() {
    if (context != nullptr) {
      (void)ibv_close_device(context);
    }
  }
};

}  // namespace

// exit() below a signal handler runs destructors that close the device in whose progress the signal
// came.
int exit_in_handler() {
  static ClosesAtExit another;
  another.context = open_first_device();
  static QueuePair* const queue = new QueuePair(kSlots, kSize);
  signal(SIGALRM, [](int) { exit(0); });
  itimerval soon{};
  soon.it_value.tv_usec = 3000 + getpid() % 1000;
  setitimer(ITIMER_REAL, &soon, nullptr);
  for (;;) {
    talk_to_itself(*queue);
  }
}

// The sender counts its completions only; so the receiver's last acknowledgement must have left
// before its process ends.
int exit_at_once() {
  constexpr int kMessages = 3;
  const bool sender = own_rank() == 0;
  auto* const queue = new QueuePair(kSlots, kSize);  // as in most programs: it is never taken down
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    queue->post_receive(slot);
  }
  const std::uint32_t peer = exchange("number", queue->number());
  ibv_wc done{};
  for (int i = 0; sender && i < kMessages; ++i) {
    demand(queue->post_send(0, 100, peer), "no room");
  }
  for (int missing = kMessages; missing > 0;) {
    if (queue->poll(done)) {
      demand(done.status == IBV_WC_SUCCESS, ibv_wc_status_str(done.status));
      --missing;
    }
  }
  return 0;
}

int exit_cancelled() {
  static QueuePair* const queue = new QueuePair(kSlots, kSize);
  // No process is there to answer. What is sent again says that the network loses packets, and who
  // leaves such a network stays for a moment.
  constexpr std::uint32_t kNobody = 0x4000;
  demand(queue->post_send(0, 1, queue->number() ^ kNobody), "no room");
  ibv_wc done{};
  for (const auto begin = std::chrono::steady_clock::now();
       std::chrono::steady_clock::now() - begin < std::chrono::milliseconds{300};) {
    (void)queue->poll(done);
  }
  pthread_t thread{};
  pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        pthread_cancel(pthread_self());
        exit(0);
      },
      nullptr);
  pthread_join(thread, nullptr);
  demand(false, "the thread is gone and exit() with it");
  return 1;
}

// A cancelled thread must not hold the device's lock for ever: the main thread talks to itself
// after each.
int cancelled_poller() {
  struct Poller {
    QueuePair* queue;
    std::atomic<bool> polling{false};
    std::atomic<bool> stop{false};
  };
  QueuePair queue(kSlots, kSize);
  for (int round = 0; round < 100; ++round) {
    Poller poller{&queue};
    pthread_t thread{};
    pthread_create(
        &thread, nullptr,
        [](void* argument) -> void* {
          auto& self = *static_cast<Poller*>(argument);
          int before = 0;
          ibv_wc done{};
          while (!self.stop) {
            (void)self.queue->poll(done);
            self.polling = true;
            // Long enough for the device's own thread to fall asleep: the next poll wakes it. The
            // only points of cancellation in this loop would be the device's.
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
            std::this_thread::sleep_for(std::chrono::microseconds{200});
            pthread_setcancelstate(before, nullptr);
          }
          return nullptr;
        },
        &poller);
    while (!poller.polling) {
      std::this_thread::yield();
    }
    pthread_cancel(thread);
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
    poller.stop = true;
    pthread_join(thread, nullptr);
    talk_to_itself(queue);
  }
  return 0;
}

namespace {

// A thread writes to a device file while another one closes it: it finds the file open or closed,
// and nothing in between, such as the socket behind it.
int closed_while_written(bool use_up_numbers) {
  signal(SIGPIPE, [](int) { _exit(3); });
  static std::atomic<int> file{-1};
  static std::atomic<bool> writes{false};
  static std::atomic<int> wrong{0};
  static std::atomic<bool> ends{false};
  std::thread writer([] {
    constexpr char kNoCommand = 0;  // shorter than any
    for (; !ends; writes = false) {
      writes = true;
      if (const int fd = file; fd >= 0 && write(fd, &kNoCommand, 1) >= 0) {
        wrong = -1;
      } else if (fd >= 0 && errno != EINVAL && errno != EBADF) {
        wrong = errno;
      }
    }
  });
  const auto stop = std::chrono::steady_clock::now() + std::chrono::seconds{4};
  for (int round = 0; wrong == 0 && std::chrono::steady_clock::now() < stop; ++round) {
    const char* const name = round % 2 == 0 ? "/dev/infiniband/rdma_cm" : "/dev/infiniband/uverbs0";
    const int fd = open(name, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    demand(fd >= 0, name);
    const FullProcess full(use_up_numbers);
    file = fd;
    std::this_thread::yield();
    close(fd);
    file = -1;  // the number may be another file's from here on
    while (writes) {
      std::this_thread::yield();
    }
  }
  ends = true;
  writer.join();
  demand(wrong == 0, wrong > 0 ? std::strerror(wrong) : "a command that is none was taken");
  return 0;
}

}  // namespace

int closed_while_written() { return closed_while_written(false); }
int written_in_a_full_process() { return closed_while_written(true); }

// Calls that are no points of cancellation, by a thread that is to be cancelled: of files and
// interfaces for which the library itself opens files.
int cancelled_questions() {
  static std::string counter;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband")) {
    counter = entry.path().string() + "/ports/1/hw_counters/lifespan";
  }
  pthread_t thread{};
  static std::atomic<int> answered{0};
  pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        pthread_cancel(pthread_self());
        struct stat status {};
        answered += stat(counter.c_str(), &status) == 0 ? 1 : 0;
        answered += access(counter.c_str(), R_OK) == 0 ? 1 : 0;
        answered += access("/dev/infiniband/uverbs0", R_OK) == 0 ? 1 : 0;
        ifaddrs* list = nullptr;
        answered += getifaddrs(&list) == 0 ? 1 : 0;
        freeifaddrs(list);
        pthread_testcancel();
        return nullptr;
      },
      nullptr);
  void* result = nullptr;
  pthread_join(thread, &result);
  demand(answered == 4, "a call was not answered");
  demand(result == PTHREAD_CANCELED, "the thread was not cancelled");
  return 0;
}

// The child gets a device of its own, and nothing of the parent's, in whatever state the parent
// was.
int forks() {
  QueuePair queue(kSlots, kSize);
  std::atomic<bool> stop{false};
  std::thread opens([&] {
    while (!stop) {
      const int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
      demand(fd >= 0, "cannot open the device");
      close(fd);
    }
  });
  for (int i = 0; i < 60; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        const std::string file = std::filesystem::read_symlink(entry.path()).string();
        const bool ours = std::stoi(entry.path().filename().string()) >= 512;
        demand(!ours || file.rfind("socket:", 0) != 0, "the child holds the parent's way to weftd");
      }
      const int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
      demand(fd >= 0, "the child cannot open the device");
      close(fd);
      std::_Exit(0);
    }
    int status = 0;
    demand(waitpid(child, &status, 0) == child && status == 0, "a child fails");
  }
  stop = true;
  opens.join();
  talk_to_itself(queue);
  return 0;
}

namespace {

// Whether a child of vfork() may not open the device, which it would do in its parent's memory.
bool refuses_child_of_vfork() {
  const pid_t child = vfork();
  if (child == 0) {
    const int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
    const int error = errno;
    const int socket = ::socket(AF_NETLINK, SOCK_RAW, 20);  // NETLINK_RDMA
    _exit(fd < 0 && error == EIO && (socket < 0 || close(socket) == 0) ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

void use_device() {
  QueuePair queue(kSlots, kSize);
  talk_to_itself(queue);
}

// Past fork(), so that no handler of pthread_atfork() runs.
void in_child_past_fork(void (*work)(), const char* what) {
  const pid_t child = _Fork();
  if (child == 0) {
    alarm(20);
    work();
    std::_Exit(0);
  }
  int status = 0;
  demand(waitpid(child, &status, 0) == child && status == 0, what);
}

}  // namespace

// One that was made past fork() has its own memory.
int children_past_fork() {
  demand(refuses_child_of_vfork(), "a child of vfork() before anything else");
  in_child_past_fork(use_device, "a child of _Fork()");
  QueuePair queue(kSlots, kSize);
  talk_to_itself(queue);
  demand(refuses_child_of_vfork(), "a child of vfork() beside an open device");
  talk_to_itself(queue);
  return 0;
}

// The first that a child of _Fork() does is to have a child of vfork(). 77: this kernel does not
// say who shares memory.
int grandchildren_by_vfork() {
  if (syscall(SYS_kcmp, getpid(), getpid(), KCMP_VM, 0, 0) != 0) {
    return 77;
  }
  in_child_past_fork(
      [] {
        demand(refuses_child_of_vfork(), "a child of vfork() of a child of _Fork()");
        use_device();
        demand(refuses_child_of_vfork(), "another one");
      },
      "its own device");
  return 0;
}

// The child has the channel's descriptor, but none of the threads that had the NIC at that moment.
int forked_channels() {
  constexpr int kChildren = 60;
  QueuePair queue(kSlots, kSize);
  ibv_comp_channel* const channel = ibv_create_comp_channel(queue.context());
  demand(channel != nullptr, "no channel");
  std::atomic<bool> stop{false};
  // Looking at the pages of a large region, one by one, takes the NIC for long.
  std::vector<std::uint8_t> memory(std::size_t{16} * 4096);
  std::thread registers([&] {
    const int access = IBV_ACCESS_LOCAL_WRITE;
    while (!stop) {
      ibv_mr* const region = ibv_reg_mr(queue.domain(), memory.data(), memory.size(), access);
      demand(region != nullptr && ibv_dereg_mr(region) == 0, "cannot register");
    }
  });
  std::thread polls([&] {
    ibv_wc done{};
    while (!stop) {
      (void)queue.poll(done);
    }
  });
  for (int i = 0; i < kChildren; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      const bool closed = close(channel->fd) == 0;
      // The number is another file's now, in a child that has its own device.
      const int fd = open("/dev/null", O_RDONLY);
      std::_Exit(closed && fd >= 0 && close(fd) == 0 ? 0 : 1);
    }
    int status = 0;
    demand(waitpid(child, &status, 0) == child && status == 0, "a child hangs");
  }
  stop = true;
  registers.join();
  polls.join();
  demand(ibv_destroy_comp_channel(channel) == 0, "the parent's channel is gone");
  talk_to_itself(queue);
  return 0;
}

// All threads come to the device in the same moment, and none of them has used it before.
int first_use() {
  constexpr int kThreads = 8;
  std::atomic<int> waiting{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      ++waiting;
      while (waiting < kThreads) {
        std::this_thread::yield();
      }
      QueuePair queue(kSlots, kSize);
      talk_to_itself(queue, 10);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return 0;
}

}  // namespace weft::conformance
