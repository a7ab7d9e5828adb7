// Owns the cases about threads that wait in a device file, which is used without its library.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/guest/connection_file.hpp"
#include "tests/conformance/guest/full_process.hpp"
#include "tests/conformance/guest/ranks.hpp"

namespace weft::conformance {
namespace {

void on_signal(int flags) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = flags;
  sigaction(SIGUSR1, &action, nullptr);
}

void doze() { std::this_thread::sleep_for(std::chrono::milliseconds{2}); }

// A thread that asks for the next event.
struct Waiter {
  explicit Waiter(int asked) : file(asked) {
    pthread_create(
        &thread, nullptr,
        [](void* argument) -> void* {
          auto& self = *static_cast<Waiter*>(argument);
          self.id = static_cast<int>(syscall(SYS_gettid));
          self.error = self.get_event() < 0 ? errno : 0;
          return nullptr;
        },
        this);
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  ssize_t get_event() {
    return ask(file, ucma::Command::get_event,
               ucma::GetEvent{reinterpret_cast<std::uint64_t>(&event)}, &event);
  }
  // The kernel says which call a thread sleeps in.
  void await_sleep() const {
    long call = -1;
    for (int i = 0; i < 5000 && call != SYS_recvfrom; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
      std::ifstream state("/proc/self/task/" + std::to_string(id) + "/syscall");
      state >> call;
    }
    demand(call == SYS_recvfrom, "it sleeps until there is an event");
  }
  void* join() const {
    void* result = nullptr;
    pthread_join(thread, &result);
    return result;
  }

  int file;
  pthread_t thread{};
  ucma::EventReply event{};
  std::atomic<int> id{0};
  std::atomic<int> error{-1};
};

}  // namespace

int cancelled_waiter() {
  const int file = open_connections();
  for (int round = 0; round < 20; ++round, doze()) {
    Waiter waiter(file);
    if (round % 2 != 0) {
      doze();  // it sleeps already, or not yet
    }
    pthread_cancel(waiter.thread);
    demand(waiter.join() == PTHREAD_CANCELED, "it is cancelled in its sleep");
  }
  demand(fcntl(file, F_SETFL, O_NONBLOCK) == 0, "fcntl");
  Waiter waiter(file);
  (void)waiter.join();
  demand(waiter.error == EAGAIN, "there is no event");
  close(file);
  return 0;
}

// It sleeps on, as in the kernel, whatever becomes of the number; and the next signal ends its
// call, also one that comes with the close.
int closed_waiter() {
  on_signal(0);
  for (int round = 0; round < 100; ++round) {
    const int file = open_connections();
    Waiter waiter(file);
    waiter.await_sleep();
    close(file);
    const int next = round % 2 == 0 ? -1 : open_connections(round % 4 == 1 ? O_NONBLOCK : 0);
    pthread_kill(waiter.thread, SIGUSR1);
    (void)waiter.join();
    demand(waiter.error == EINTR, "only a signal ends it");
    close(next);
  }
  const int file = open_connections();
  Waiter waiter(file);
  waiter.await_sleep();
  const int other = fcntl(file, F_DUPFD_CLOEXEC, 0);
  close(file);
  bring_event(other);
  (void)waiter.join();
  demand(waiter.error == 0 && waiter.event.uid == 7, "another number of the file serves it");
  close(other);
  return 0;
}

// With SA_RESTART, the kernel begins the call again, by the number that it was given.
int restarted_waiter() {
  on_signal(SA_RESTART);
  for (int round = 0; round < 50; ++round) {
    const int file = open_connections();
    Waiter waiter(file);
    waiter.await_sleep();
    pthread_kill(waiter.thread, SIGUSR1);
    doze();
    waiter.await_sleep();
    if (round % 2 == 0) {
      bring_event(file);
    } else {
      close(file);
      pthread_kill(waiter.thread, SIGUSR1);
    }
    (void)waiter.join();
    demand(waiter.error == (round % 2 == 0 ? 0 : EBADF), "it goes on as long as its file is open");
    if (round % 2 == 0) {
      close(file);
    }
  }
  return 0;
}

// More often than there are numbers for files.
int cancelled_waiters() {
  for (int round = 0; round < 400; ++round) {
    const int file = open_connections();
    Waiter waiter(file);
    waiter.await_sleep();
    pthread_cancel(waiter.thread);
    demand(waiter.join() == PTHREAD_CANCELED, "it is cancelled in its sleep");
    close(file);
  }
  return 0;
}

// What remains open can be asked for the next event: there is nobody to wait for.
int closed_duplicate() {
  const int file = open_connections();
  bring_event(file);
  std::atomic<bool> handled = false;
  std::atomic<bool> stop = false;
  std::thread handler([&] {
    ucma::EventReply event{};
    demand(ask(file, ucma::Command::get_event,
               ucma::GetEvent{reinterpret_cast<std::uint64_t>(&event)}, &event) > 0,
           "an event");
    handled = true;
    while (!stop) {
    }
  });
  while (!handled) {
    std::this_thread::yield();
  }
  const auto times_slept = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  };
  const int other = fcntl(file, F_DUPFD_CLOEXEC, 0);
  const long slept = times_slept();
  close(other);
  demand(times_slept() - slept < 10, "a close that waits for nobody");
  stop = true;
  handler.join();
  close(file);
  return 0;
}

namespace {

// The thread that closes does not wait for the one that handles events, which is late each time. A
// busy machine may make it later than it is waited for, but not again and again.
int late_handlers(bool use_up_numbers) {
  constexpr int kRounds = 20;
  int in_time = 0;
  on_signal(0);
  for (int round = 0; round < kRounds; ++round) {
    const int file = open_connections();
    bring_event(file);
    std::atomic<bool> handled = false;
    std::atomic<int> error = -1;
    std::thread handler([&] {
      ucma::EventReply event{};
      const auto get_event = [&] {
        return ask(file, ucma::Command::get_event,
                   ucma::GetEvent{reinterpret_cast<std::uint64_t>(&event)}, &event);
      };
      demand(get_event() > 0, "an event");
      handled = true;
      const auto begun = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - begun < std::chrono::milliseconds{1}) {
      }
      error = get_event() < 0 ? errno : 0;
    });
    while (!handled) {
      std::this_thread::yield();
    }
    const FullProcess full(use_up_numbers);
    close(file);
    while (error == -1) {
      pthread_kill(handler.native_handle(), SIGUSR1);
      doze();
    }
    handler.join();
    demand(error == EINTR || error == EBADF, "it sleeps, or there is no such file");
    in_time += error == EINTR ? 1 : 0;
  }
  demand(in_time > kRounds / 2, "the file is open until its reader sleeps");
  return 0;
}

}  // namespace

int late_handler() { return late_handlers(false); }
int late_handler_of_a_full_process() { return late_handlers(true); }

}  // namespace weft::conformance
