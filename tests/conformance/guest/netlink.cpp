// Owns the cases about the sockets by which programs ask for devices: they are descriptors like all
// others.
#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/storm/queue_pair.hpp"

namespace weft::conformance {
namespace {

constexpr int kRdma = 20;          // NETLINK_RDMA
constexpr int kGet = 5 << 10 | 1;  // RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET
constexpr std::uint16_t kAll = NLM_F_REQUEST | NLM_F_DUMP;

int ask_socket() { return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, kRdma); }

// "Which devices are there?", with 7 as its sequence number.
nlmsghdr question() { return {sizeof(nlmsghdr), kGet, kAll, 7, 0}; }

// One device, and the end.
bool has_answers(int fd) {
  std::array<char, 8192> datagram;
  int count = 0;
  while (recv(fd, datagram.data(), datagram.size(), MSG_DONTWAIT) > 0) {
    ++count;
  }
  return count == 2;
}

bool answers(int fd) {
  const nlmsghdr asked = question();
  return send(fd, &asked, sizeof asked, 0) == sizeof asked && has_answers(fd);
}

// False: the child has found something wrong.
template <class Work>
bool in_child_of_vfork(Work&& work) {
  const pid_t child = vfork();
  if (child == 0) {
    _exit(work() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

int netlink_sockets() {
  const int fd = ask_socket();
  demand(fd >= 0 && answers(fd), "send()");
  nlmsghdr asked = question();
  iovec piece{&asked, sizeof asked};
  demand(writev(fd, &piece, 1) == sizeof asked && has_answers(fd), "writev()");
  mmsghdr many{};
  many.msg_hdr.msg_iov = &piece;
  many.msg_hdr.msg_iovlen = 1;
  demand(sendmmsg(fd, &many, 1, 0) == 1 && many.msg_len == sizeof asked && has_answers(fd),
         "sendmmsg()");
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  demand(connect(fd, reinterpret_cast<const sockaddr*>(&kernel), sizeof kernel) == 0 && answers(fd),
         "connected to the kernel");

  // Children of vfork close and replace their own descriptors, not ours.
  const int plain = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  demand(plain >= 0, "a file");
  demand(in_child_of_vfork([&] { return dup2(fd, plain) == plain && close(fd) == 0; }), "vfork()");
  demand(answers(fd), "after a child has closed its copy");
  demand(write(plain, "x", 1) == 1, "after a child has replaced its file");
  const pid_t child = fork();
  if (child == 0) {
    const int copy = dup(fd);
    _exit(answers(copy) ? 0 : 1);
  }
  int status = 0;
  demand(waitpid(child, &status, 0) == child && status == 0, "in a child of fork");

  demand(syscall(SYS_close, fd) == 0, "a raw close()");
  const int next = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  demand(next == fd && write(next, "x", 1) == 1 && dup2(next, plain) == plain, "another file");
  demand(write(plain, "x", 1) == 1, "and its copy");

  const rlimit none{0, 0};
  demand(setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
  demand(ask_socket() < 0 && errno == EMFILE, "no descriptor is left");
  return 0;
}

}  // namespace weft::conformance
