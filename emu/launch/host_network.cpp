// Owns making namespaces with a tap, without root, and handing the tap to weftd.
//
// A child process enters new namespaces, makes the tap there, and sends three descriptors back: the
// tap and the two namespaces. Then it ends; the descriptors keep the namespaces alive. The parent
// never leaves its own namespace.
#include "emu/launch/host_network.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "emu/attach/client.hpp"
#include "emu/attach/seqpacket.hpp"
#include "emu/launch/namespaces.hpp"
#include "srd/io/tap_io.hpp"

namespace weft::launch {
namespace {

constexpr const char* kNetmask = "255.255.0.0";

// What the child sends back: an empty text and three descriptors, or why it failed.
struct Made {
  std::array<char, 200> failure{};
};

ifreq request_for(const char* device) {
  ifreq request{};
  std::strncpy(request.ifr_name, device, sizeof request.ifr_name - 1);
  return request;
}

bool bring_up(int socket, const char* device) {
  ifreq request = request_for(device);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  return ::ioctl(socket, SIOCSIFFLAGS, &request) == 0;
}

bool set_address(int socket, unsigned long what, const char* device, const char* address) {
  ifreq request = request_for(device);
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  const bool understood = ::inet_pton(AF_INET, address, &ipv4.sin_addr) == 1;
  std::memcpy(&request.ifr_addr, &ipv4, sizeof ipv4);
  return understood && ::ioctl(socket, what, &request) == 0;
}

// In a child: moves itself into new namespaces and furnishes them. Returns the tap.
Result<srd::UniqueFd> furnish(const std::string& address) {
  if (auto entered = enter_private_network(); !entered) {
    return tl::unexpected(entered.error());
  }
  std::string name = "weft0";
  auto tap = srd::TapIo::open_device(name);
  if (!tap) {
    return tap;
  }
  const srd::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!set_address(socket.get(), SIOCSIFADDR, name.c_str(), address.c_str()) ||
      !set_address(socket.get(), SIOCSIFNETMASK, name.c_str(), kNetmask) ||
      !bring_up(socket.get(), name.c_str())) {
    return fail(ErrorCode::io_error, srd::errno_text("the host's network device"));
  }
  return tap;
}

// All of the child. It must not return into code that believes itself to be the parent.
[[noreturn]] void furnish_and_send(int channel, const std::string& address) {
  Made made;
  auto tap = furnish(address);
  if (!tap) {
    std::strncpy(made.failure.data(), tap.error().message.c_str(), made.failure.size() - 1);
    [[maybe_unused]] const bool sent = attach::send_struct(channel, made);
    ::_exit(1);
  }
  const srd::UniqueFd user(::open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC));
  const srd::UniqueFd network(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  [[maybe_unused]] const bool sent =
      attach::send_struct(channel, made, {tap->get(), user.get(), network.get()});
  ::_exit(0);
}

// Root that cannot make user namespaces stays in its own (enter_private_network()).
bool is_our_user_namespace(int there) {
  struct stat theirs {};
  struct stat ours {};
  return ::fstat(there, &theirs) == 0 && ::stat("/proc/self/ns/user", &ours) == 0 &&
         theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

}  // namespace

Result<HostNetwork> HostNetwork::create(const std::string& weftd_directory, const std::string& host,
                                        const std::string& address) {
  int channel[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) != 0) {
    return fail(ErrorCode::out_of_resources, srd::errno_text("a socket pair"));
  }
  const srd::UniqueFd ours(channel[0]);
  srd::UniqueFd theirs(channel[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    furnish_and_send(theirs.get(), address);
  }
  if (child < 0) {
    return fail(ErrorCode::out_of_resources, srd::errno_text("starting a process"));
  }
  theirs.reset();
  attach::Received received = attach::await_message(ours.get(), attach::kHandshakeMilliseconds);
  ::kill(child, SIGKILL);  // it has sent everything, or hangs
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  const auto made = received.as<Made>();
  if (!made || received.fds.size() != 3) {
    return fail(ErrorCode::not_permitted,
                "--netns: " + (made ? std::string(made->failure.data()) : "no answer"));
  }
  auto donor = attach::give_tap({.socket = weftd_directory + "/attach.sock", .host = host},
                                received.fds[0].get());
  if (!donor) {
    return fail(donor.error().code, "the tap of host '" + host + "': " + donor.error().message);
  }
  HostNetwork network;
  network.donor_ = std::move(*donor);
  if (!is_our_user_namespace(received.fds[1].get())) {  // setns() to one's own fails
    network.user_ = std::move(received.fds[1]);
  }
  network.network_ = std::move(received.fds[2]);
  return network;
}

bool HostNetwork::enter() const {
  return (!user_ || ::setns(user_.get(), CLONE_NEWUSER) == 0) &&
         ::setns(network_.get(), CLONE_NEWNET) == 0;
}

}  // namespace weft::launch
