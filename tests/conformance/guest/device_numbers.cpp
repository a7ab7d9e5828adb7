// Owns the cases about numbers of device files: their duplicates.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/guest/connection_file.hpp"

namespace weft::conformance {
namespace {

constexpr const char* kDevices[] = {"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0",
                                    "/dev/infiniband/umad0"};

int open_file(const char* device, int flags) {
  const int file = open(device, flags);
  demand(file >= 0, device);
  return file;
}

// An answer that only the device gives: what it is told is too short.
bool is_device(int fd) {
  constexpr std::uint64_t kNothing = 0;
  pollfd asked{fd, POLLIN, 0};
  return write(fd, &kNothing, sizeof kNothing - 4) < 0 && errno != EBADF && errno != EPIPE &&
         poll(&asked, 1, 0) >= 0 && (asked.revents & POLLNVAL) == 0;
}

bool closes_on_exec(int fd) { return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; }

// At a file of connections that does not wait, and has no event.
bool has_no_event(int fd) {
  ucma::EventReply event{};
  return ask(fd, ucma::Command::get_event, ucma::GetEvent{reinterpret_cast<std::uint64_t>(&event)},
             &event) < 0 &&
         errno == EAGAIN;
}

}  // namespace

int duplicated_onto_itself() {
  for (const char* const device : kDevices) {
    const int file = open_file(device, O_RDWR);
    const int other = fcntl(file, F_DUPFD_CLOEXEC, 0);
    demand(dup2(file, other) == other && is_device(other), "dup2() onto a number of the same file");
    demand(!closes_on_exec(other), "FD_CLOEXEC after dup2()");
    demand(dup3(file, other, O_CLOEXEC) == other && is_device(other), "dup3(), the same");
    demand(closes_on_exec(other), "FD_CLOEXEC after dup3()");
    close(file);
    demand(is_device(other), "the other number is the file's");
    close(other);
  }
  return 0;
}

int replaced_while_used() {
  signal(SIGPIPE, SIG_IGN);
  const int file = open_connections(O_NONBLOCK);
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  std::thread user([&] {
    while (!stop) {
      wrong += has_no_event(file) ? 0 : 1;
    }
  });
  for (int round = 0; round < 5000; ++round) {
    const int next = open_connections(O_NONBLOCK);
    demand((round % 2 == 0 ? dup2(next, file) : dup3(next, file, O_CLOEXEC)) == file, "dup2()");
    close(next);
  }
  stop = true;
  user.join();
  demand(wrong == 0, "the number is one file or the other");
  demand(has_no_event(file), "the number is the last file");
  return 0;
}

int duplicated_while_closed() {
  signal(SIGPIPE, SIG_IGN);
  constexpr int kNumber = 100;
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  std::thread user([&] {
    for (bool by_dup = true; !stop; by_dup = !by_dup) {
      const int copy = by_dup ? dup(kNumber) : fcntl(kNumber, F_DUPFD_CLOEXEC, 0);
      if (copy >= 0) {
        wrong += has_no_event(copy) ? 0 : 1;
        close(copy);
      } else {
        wrong += errno == EBADF ? 0 : 1;
      }
    }
  });
  for (int round = 0; round < 5000; ++round) {
    const int file = open_connections(O_NONBLOCK);
    demand(dup2(file, kNumber) == kNumber, "dup2()");
    close(file);
    close(kNumber);
  }
  stop = true;
  user.join();
  demand(wrong == 0, "a duplicate is the file, or there is none");
  return 0;
}

}  // namespace weft::conformance
