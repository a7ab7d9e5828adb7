// Owns the cases about numbers of device files: their duplicates, and what any file's number has.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/guest/connection_file.hpp"
#include "tests/conformance/guest/own_queue.hpp"

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
  std::atomic<int> file =
      -1;  // nothing else gets its number before it has no duplicate in the make
  std::atomic<bool> is_made = false;
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  std::thread user([&] {
    for (bool by_dup = true; !stop; by_dup = !by_dup) {
      is_made = true;
      if (const int number = file; number >= 0) {
        const int copy = by_dup ? dup(number) : fcntl(number, F_DUPFD_CLOEXEC, 0);
        wrong += copy >= 0 ? !has_no_event(copy) : errno != EBADF;
        close(copy);
      }
      is_made = false;
    }
  });
  for (int round = 0; round < 5000; ++round) {
    file = open_connections(O_NONBLOCK);
    for (int wait = round % 1000; wait > 0 && !stop; --wait) {
    }
    close(file);
    file = -1;
    while (is_made) {
      std::this_thread::yield();
    }
  }
  stop = true;
  user.join();
  demand(wrong == 0, "a duplicate is the file, or there is none");
  return 0;
}

int ioctls_of_any_file() {
  for (const char* const device : kDevices) {
    const int file = open_file(device, O_RDWR | O_CLOEXEC);
    const auto does_not_block = [file] { return (fcntl(file, F_GETFL) & O_NONBLOCK) != 0; };
    int on = 1;
    demand(ioctl(file, FIONBIO, &on) == 0 && does_not_block(), "FIONBIO");
    on = 0;
    demand(ioctl(file, FIONBIO, &on) == 0 && !does_not_block(), "FIONBIO, back");
    demand(ioctl(file, FIOASYNC, &on) == 0, "FIOASYNC");
    demand(ioctl(file, FIONCLEX) == 0 && !closes_on_exec(file), "FIONCLEX");
    demand(ioctl(file, FIOCLEX) == 0 && closes_on_exec(file), "FIOCLEX");
    demand(ioctl(file, FIONREAD, &on) == -1 && errno == ENOTTY, "FIONREAD");
    close(file);
  }
  return 0;
}

int flags_of_open() {
  for (const char* const device : kDevices) {
    constexpr std::uint64_t kNothing = 0;
    const int unwritten = open_file(device, O_RDONLY);
    demand(write(unwritten, &kNothing, sizeof kNothing) == -1 && errno == EBADF,
           "it was opened to be read");
    demand((fcntl(unwritten, F_GETFL) & O_ACCMODE) == O_RDONLY, "F_GETFL of O_RDONLY");
    const int file = open_file(device, O_WRONLY | O_APPEND | O_NONBLOCK);
    const int flags = fcntl(file, F_GETFL);
    demand((flags & (O_ACCMODE | O_APPEND | O_NONBLOCK)) == (O_WRONLY | O_APPEND | O_NONBLOCK),
           "F_GETFL of O_APPEND and O_NONBLOCK");
    demand(is_device(file), "it is written to");
    close(unwritten);
    close(file);
  }
  const int unread = open_file(kDevices[2], O_WRONLY | O_NONBLOCK);
  char byte = 0;
  demand(read(unread, &byte, 1) == -1 && errno == EBADF, "it was opened to be written to");
  close(unread);
  return 0;
}

int lowest_number() {
  const auto lowest = [] {
    const int free = dup(STDIN_FILENO);
    close(free);
    return free;
  };
  for (const char* const device : kDevices) {
    close(open_file(device, O_RDWR));
    const int free = lowest();
    const int file = open_file(device, O_RDWR);
    demand(file == free, device);
    close(file);
  }
  ibv_context* const context = open_first_device();
  const int free = lowest();
  ibv_comp_channel* const channel = ibv_create_comp_channel(context);
  demand(channel != nullptr && channel->fd == free, "a channel");
  return 0;
}

}  // namespace weft::conformance
