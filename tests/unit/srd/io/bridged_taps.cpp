// Owns the making of namespaces, taps and a bridge, without root and without other programs. A
// child makes them in a namespace of its own and sends the two taps' descriptors to the test, which
// stays where it is; with the last descriptor all of it is gone.
#include "tests/unit/srd/io/bridged_taps.hpp"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_bridge.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "srd/io/tap_io.hpp"

namespace weft::srd::test {
namespace {

void write_file(const std::string& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  [[maybe_unused]] const auto written = ::write(file.get(), text.data(), text.size());
}

ifreq request_for(const std::string& name) {
  ifreq request{};
  std::memcpy(request.ifr_name, name.data(), name.size());
  return request;
}

bool bring_up(int socket, const std::string& name) {
  write_file("/proc/sys/net/ipv6/conf/" + name + "/disable_ipv6", "1");  // it would talk by itself
  ifreq request = request_for(name);
  // Above the suite's largest packet and what is put around it.
  request.ifr_mtu = 9000;
  const bool sized = ::ioctl(socket, SIOCSIFMTU, &request) == 0;
  request = request_for(name);
  request.ifr_flags = IFF_UP;
  return sized && ::ioctl(socket, SIOCSIFFLAGS, &request) == 0;
}

bool join_bridge(int socket, const std::string& name) {
  ifreq index = request_for(name);
  if (::ioctl(socket, SIOCGIFINDEX, &index) != 0) {
    return false;
  }
  ifreq request = request_for("bridge");
  request.ifr_ifindex = index.ifr_ifindex;
  return ::ioctl(socket, SIOCBRADDIF, &request) == 0;
}

// In a child: sends both devices, or nothing.
void make_and_send(int channel) {
  const std::string uid = std::to_string(::geteuid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    return;
  }
  write_file("/proc/self/uid_map", "0 " + uid + " 1");
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  std::string names[] = {"one", "two"};
  UniqueFd taps[2];
  bool made = ::ioctl(socket.get(), SIOCBRADDBR, "bridge") == 0;
  for (int i = 0; made && i < 2; ++i) {
    auto tap = TapIo::open_device(names[i]);
    made = tap && bring_up(socket.get(), names[i]) && join_bridge(socket.get(), names[i]);
    if (made) {
      taps[i] = std::move(*tap);
    }
  }
  if (!made || !bring_up(socket.get(), "bridge")) {
    return;
  }
  const int fds[2] = {taps[0].get(), taps[1].get()};
  char byte = 0;
  iovec piece{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(header), fds, sizeof fds);
  ::sendmsg(channel, &message, 0);
}

}  // namespace

std::pair<UniqueFd, UniqueFd> bridged_taps() {
  int channel[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) != 0) {
    throw std::runtime_error("no socket pair");
  }
  const UniqueFd ours(channel[0]);
  UniqueFd theirs(channel[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    make_and_send(theirs.get());
    ::_exit(0);
  }
  theirs.reset();
  int fds[2] = {-1, -1};
  char byte = 0;
  iovec piece{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)];
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const bool received = ::recvmsg(ours.get(), &message, MSG_CMSG_CLOEXEC) == 1;
  ::waitpid(child, nullptr, 0);
  const cmsghdr* header = received ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_len != CMSG_LEN(sizeof fds)) {
    throw std::runtime_error(
        "this machine gives no tap devices on a bridge in a namespace of one's own");
  }
  std::memcpy(fds, CMSG_DATA(header), sizeof fds);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

}  // namespace weft::srd::test
